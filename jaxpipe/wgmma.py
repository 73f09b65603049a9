"""Kinds of wgmma, and how a block's registers are split between its warpgroups.

It must not know problems or schedules. Source: PTX ISA, wgmma.mma_async and setmaxnreg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Copy = Literal["tma", "cp_async"]


@dataclass(frozen=True, slots=True)
class Wgmma:
    """One kind of wgmma: operand and accumulator names in PTX, k of one instruction (32 bytes).

    has_major: an operand may be contiguous along m or n (tnsp immediates exist). b_multiple: what
    the width of b must be a multiple of beyond 32 columns. map_dtype: dtype of the tensor map
    ("tfloat32" makes TMA round while it copies).
    """

    dtype: str
    ptx: str
    accumulator: Literal["f32", "s32"]
    k: int
    has_major: bool
    has_scales: bool
    b_multiple: int
    map_dtype: str
    sass: str


WGMMAS: dict[str, Wgmma] = {
    w.dtype: w
    for w in (
        Wgmma("bfloat16", "bf16", "f32", 16, True, True, 8, "bfloat16", "HGMMA"),
        Wgmma("float16", "f16", "f32", 16, True, True, 8, "float16", "HGMMA"),
        Wgmma("float32", "tf32", "f32", 8, False, True, 8, "tfloat32", "HGMMA"),
        Wgmma("float8_e4m3fn", "e4m3", "f32", 32, False, True, 8, "float8_e4m3fn", "QGMMA"),
        Wgmma("float8_e5m2", "e5m2", "f32", 32, False, True, 8, "float8_e5m2", "QGMMA"),
        Wgmma("int8", "s8", "s32", 32, False, False, 16, "int8", "IGMMA"),
    )
}


@dataclass(frozen=True, slots=True)
class RegisterSplit:
    """Registers a thread after setmaxnreg.

    Their sum over the block's threads must fit the registers it was launched with, which are
    65536 / threads rounded down to 8: 256, 168 and 128 a thread for 1, 2 and 3 consumers.
    Otherwise the last increase waits for ever (PTX ISA, setmaxnreg).
    """

    producer: int
    consumer: int


REGISTER_SPLITS: dict[tuple[int, Copy], RegisterSplit] = {
    (1, "tma"): RegisterSplit(56, 248),
    (2, "tma"): RegisterSplit(40, 232),
    (3, "tma"): RegisterSplit(32, 160),
    (1, "cp_async"): RegisterSplit(152, 248),
    (2, "cp_async"): RegisterSplit(80, 208),
    (3, "cp_async"): RegisterSplit(56, 152),
}
# Registers of a consumer that are not accumulators: addresses, descriptors, epilogue values.
CONSUMER_OVERHEAD_REGISTERS = 56
