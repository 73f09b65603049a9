"""How a kernel is launched, as flat words: what travels inside a custom call beside its binary.

In: a Kernel's launches and the sizes of the call's buffers. Out: int64 words and a few names, read
by csrc/recipe.cc for both the CUDA launcher and the interpreter; recipe.h lists the words. It must
not know JAX or the driver. The words depend on nothing but their arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxpipe.errors import UnsupportedError
from jaxpipe.kernel import (
    BUFFER_ROLES,
    BufferRole,
    Kernel,
    Launch,
    Param,
    Pointer,
    Scalar,
    SizeOf,
    TensorMap,
)

VERSION, SIZES_VERSION = 1, 2
# csrc/recipe.h decodes into arrays of these sizes.
MAX_BUFFERS, MAX_LAUNCHES, MAX_PARAMS, MAX_TENSOR_MAPS, MAX_RANK = 8, 4, 24, 6, 5
MAX_SIZES = 2

ROLE_WORD: dict[BufferRole, int] = {role: word for word, role in enumerate(BUFFER_ROLES)}
SCALAR_WORD = {"int32": 0, "int64": 1, "float32": 2}
# Tensor maps move bytes: every 8-bit type is the driver's UINT8.
TENSOR_DTYPES = {
    "float32": 0,
    "bfloat16": 1,
    "float16": 2,
    "int8": 3,
    "float8_e4m3fn": 3,
    "float8_e5m2": 3,
    "int32": 4,
    "tfloat32": 5,
}


@dataclass(frozen=True, slots=True)
class Buffer:
    """One operand or result of the custom call: its role and its size in bytes, of ones in the
    place of the kernel's `sizes` that it is times."""

    role: BufferRole
    size_bytes: int
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """The words, and names: kernel, target, the entry of every launch, one a line."""

    words: tuple[int, ...]
    names: str


def encode(kernel: Kernel, operands: Sequence[Buffer], results: Sequence[Buffer]) -> Recipe:
    """The recipe of `kernel` for a call with these buffers, in the order of the custom call.

    Raises UnsupportedError when the kernel has more launches, parameters or tensor maps than the
    launcher decodes.
    """
    _check_limits(kernel, operands, results)
    sizes = tuple(size.name for size in kernel.sizes)
    words = [SIZES_VERSION, len(sizes)] if sizes else [VERSION]
    for size in kernel.sizes:
        words += (ROLE_WORD[size.role], size.limit)
    words += [*_buffers(operands, sizes), *_buffers(results, sizes), len(kernel.launches)]
    for launch in kernel.launches:
        words += _launch(launch, sizes)
    lines = (kernel.name, kernel.target, *(launch.entry for launch in kernel.launches))
    assert not any("\n" in line for line in lines), lines
    return Recipe(tuple(words), "\n".join(lines))


Names = tuple[str, ...]


def _buffers(buffers: Sequence[Buffer], sizes: Names) -> Iterator[int]:
    yield len(buffers)
    for buffer in buffers:
        yield from (ROLE_WORD[buffer.role], buffer.size_bytes)
        assert set(buffer.sizes) <= set(sizes), (buffer, sizes)
        yield from [_mask(buffer.sizes, sizes)] if sizes else []


def _mask(held: Names, sizes: Names) -> int:
    return sum(1 << i for i, name in enumerate(sizes) if name in held)


def _launch(launch: Launch, sizes: Names) -> Iterator[int]:
    yield from (*launch.grid, *launch.block, *launch.cluster)
    yield launch.shared_bytes
    tiles = {t.name: (t.scale, t.tile) for t in launch.tiles}
    for name in sizes:
        yield from tiles.get(name, (1, 0))
    yield len(launch.params)
    for param in launch.params:
        yield from _param(param, sizes)


def _param(param: Param, sizes: Names) -> tuple[int, ...]:
    match param:
        case Pointer(role, offset_bytes):
            return (0, ROLE_WORD[role], offset_bytes)
        case Scalar(kind, value):
            return (1, SCALAR_WORD[kind], _bits(kind, value))
        case TensorMap():
            return (2, *_tensor_map(param, sizes))
        case SizeOf(name, scale):
            return (3, sizes.index(name), scale)
        case _:
            raise AssertionError(f"no words for parameter {param!r}")


def _bits(kind: str, value: int | float) -> int:
    if kind == "float32":
        return int.from_bytes(struct.pack("<f", value), "little")
    limit = 1 << (31 if kind == "int32" else 63)
    assert -limit <= value < limit, f"{kind} parameter {value} is out of range"
    return int(value)


def _tensor_map(tensor: TensorMap, sizes: Names) -> tuple[int, ...]:
    sized, rank = dict(tensor.sized), len(tensor.dims)
    masks = [_mask((sized[i],), sizes) if i in sized else 0 for i in range(rank)]
    return (
        ROLE_WORD[tensor.role],
        tensor.offset_bytes,
        TENSOR_DTYPES[tensor.dtype],
        len(tensor.dims),
        *tensor.dims,
        *tensor.strides_bytes,
        *([*masks, *(0,) * (rank - 1)] if sizes else ()),
        *tensor.box,
        *tensor.element_strides,
        tensor.swizzle_bytes,
        tensor.l2_promotion_bytes,
    )


def _check_limits(kernel: Kernel, operands: Sequence[Buffer], results: Sequence[Buffer]) -> None:
    counts = [
        ("operands", len(operands), MAX_BUFFERS),
        ("results", len(results), MAX_BUFFERS),
        ("launches", len(kernel.launches), MAX_LAUNCHES),
        ("sizes", len(kernel.sizes), MAX_SIZES),
    ]
    for launch in kernel.launches:
        maps = [p for p in launch.params if isinstance(p, TensorMap)]
        counts.append((f"parameters of {launch.entry}", len(launch.params), MAX_PARAMS))
        counts.append((f"tensor maps of {launch.entry}", len(maps), MAX_TENSOR_MAPS))
        ranks = max((len(m.dims) for m in maps), default=1)
        counts.append((f"tensor-map rank of {launch.entry}", ranks, MAX_RANK))
    for what, got, limit in counts:
        if got > limit:
            raise UnsupportedError(
                f"kernel {kernel.name} has {got} {what}, the launcher takes {limit}: "
                "pass fewer, or raise the limit in runtime/recipe.py and csrc/recipe.h together"
            )
