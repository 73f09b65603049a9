"""The interpreter's own encoding of a tensor map: the 128 bytes that TMA instructions read.

Hardware's format is opaque, so a kernel can only pass it on or change it by tensormap.replace;
ours holds the fields in plain form (struct TensorMapBits in csrc/ptx/tensor_map.h).
"""

from __future__ import annotations

import struct

from jaxpipe.errors import PtxError
from jaxpipe.kernel import TensorMap

_MAGIC = 0x70616D54
_LAYOUT = struct.Struct("<IBBBBQ4Q5I5H5B")
BYTES = 128
# Bytes an element, and the code that tensormap.replace uses (PTX ISA, tensormap.replace).
DTYPES: dict[str, tuple[int, int]] = {
    "uint8": (1, 0), "int8": (1, 0), "float8_e4m3fn": (1, 0), "float8_e5m2": (1, 0), "bool": (1, 0),
    "uint16": (2, 1), "uint32": (4, 2), "int32": (4, 3), "uint64": (8, 4), "int64": (8, 5),
    "float16": (2, 6), "float32": (4, 7), "float64": (8, 9), "bfloat16": (2, 10),
    "tfloat32": (4, 11),
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MAX_BOX = 256


def encode_tensor_map(map_: TensorMap, address: int) -> bytes:
    """The 128 bytes for `map_` over a buffer at `address`; checks what the driver would refuse."""
    address += map_.offset_bytes
    problems = check(map_, address)
    if problems:
        raise PtxError(f"tensor map of {map_.role} cannot be encoded: {'; '.join(problems)}")
    rank = len(map_.dims)
    padded = [
        (*values, *(0,) * (length - len(values)))
        for values, length in (
            (map_.strides_bytes, 4), (map_.dims, 5), (map_.box, 5), (map_.element_strides, 5),
        )
    ]  # fmt: skip
    packed = _LAYOUT.pack(
        _MAGIC, rank, DTYPES[map_.dtype][1], _SWIZZLES[map_.swizzle_bytes], 0, address,
        *(value for values in padded for value in values),
    )  # fmt: skip
    return packed.ljust(BYTES, b"\0")


def check(map_: TensorMap, address: int) -> list[str]:
    """Why cuTensorMapEncodeTiled would refuse the map; empty when it would not."""
    problems = []
    rank = len(map_.dims)
    if map_.dtype not in DTYPES:
        return [f"dtype {map_.dtype} is none of {sorted(DTYPES)}"]
    size = DTYPES[map_.dtype][0]
    if not 1 <= rank <= 5 or len(map_.box) != rank or len(map_.element_strides) != rank:
        return [f"rank {rank} with box {map_.box} and element strides {map_.element_strides}"]
    if len(map_.strides_bytes) != rank - 1:
        return [f"{len(map_.strides_bytes)} strides for rank {rank}: one less than dims is needed"]
    if address % 16:
        problems.append(f"address {address:#x} is no multiple of 16")
    problems += [
        f"stride {stride} is no multiple of 16 below 2^40"
        for stride in map_.strides_bytes
        if stride % 16 or not 0 < stride < 1 << 40
    ]
    problems += [f"dim {dim} is not in 1..2^32" for dim in map_.dims if not 1 <= dim < 1 << 32]
    problems += [f"box {box} is not in 1..256" for box in map_.box if not 1 <= box <= _MAX_BOX]
    problems += [
        f"element stride {stride} is not in 1..8"
        for stride in map_.element_strides
        if not 1 <= stride <= 8
    ]
    inner = map_.box[0] * size
    if inner % 16:
        problems.append(f"inner box of {inner} bytes is no multiple of 16")
    if map_.swizzle_bytes not in _SWIZZLES:
        problems.append(f"swizzle of {map_.swizzle_bytes} bytes is none of 0, 32, 64, 128")
    elif map_.swizzle_bytes and inner > map_.swizzle_bytes:
        problems.append(f"inner box of {inner} bytes exceeds the swizzle of {map_.swizzle_bytes}")
    return problems
