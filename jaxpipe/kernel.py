"""A kernel on its way from source to call: Kernel, its launches and parameters, CompiledKernel.

Plain data between the emitters, the toolchain, the interpreter and the launcher. A kernel is its
source text: `Kernel.key` hashes what decides the binary. It must not know the IR, CUDA or JAX.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule

Dim3 = tuple[int, int, int]
BufferRole = Literal["lhs", "rhs", "bias", "residual", "out", "preactivation", "workspace"]
BUFFER_ROLES: tuple[BufferRole, ...] = (
    "lhs", "rhs", "bias", "residual", "out", "preactivation", "workspace",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pointer:
    """A parameter of 8 bytes: address of a buffer plus a byte offset."""

    role: BufferRole
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A parameter that is known when the call is lowered."""

    kind: Literal["int32", "int64", "float32"]
    value: int | float


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A 128-byte tensor map (cuTensorMapEncodeTiled), encoded at launch from the buffer's address.

    dims, box and element_strides are innermost first, in elements; strides_bytes has one entry
    less than dims (the innermost dimension is dense). swizzle_bytes is 0, 32, 64 or 128. dtype is
    a name of problem.DTYPES, or "tfloat32". Elements outside read as zero and are not stored.
    sized: (number of a dimension, name) of those that are a size of the call; their dims are 1.
    Source: CUDA driver API, Tensor Map Object Management.
    """

    role: BufferRole
    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle_bytes: int = 128
    l2_promotion_bytes: int = 128
    offset_bytes: int = 0
    sized: tuple[tuple[int, str], ...] = ()

    def settled(self, values: Mapping[str, int]) -> TensorMap:
        """The map of a call with these sizes."""
        dims = dict(enumerate(self.dims)) | {i: values[name] for i, name in self.sized}
        return replace(self, dims=tuple(dims.values()), sized=())


@dataclass(frozen=True, slots=True)
class SizeOf:
    """An int32 parameter: size `name` of the call times `scale`."""

    name: str
    scale: int = 1


Param = Pointer | Scalar | TensorMap | SizeOf


@dataclass(frozen=True, slots=True)
class Size:
    """A size that a call brings, 0 to `limit`: the bytes of buffer `role` over those of one."""

    name: str
    role: BufferRole
    limit: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """The grid's x is times ceil(size `name` * scale / tile)."""

    name: str
    scale: int
    tile: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One grid: entry of the source, blocks, threads, dynamic shared bytes, parameters.

    tiles: how the sizes of the call make the grid larger.
    """

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    params: tuple[Param, ...]
    cluster: Dim3 = (1, 1, 1)
    tiles: tuple[Tiles, ...] = ()

    def settled(self, values: Mapping[str, int]) -> Launch:
        """The launch of a call with these sizes."""
        x, y, z = self.grid
        for tiles in self.tiles:
            x *= -(-values[tiles.name] * tiles.scale // tiles.tile)
        params = tuple(_settled(param, values) for param in self.params)
        return replace(self, grid=(x, y, z), params=params, tiles=())


def _settled(param: Param, values: Mapping[str, int]) -> Param:
    match param:
        case SizeOf(name, scale):
            return Scalar("int32", values[name] * scale)
        case TensorMap():
            return param.settled(values)
        case _:
            return param


@dataclass(frozen=True, slots=True)
class Kernel:
    """Self-contained CUDA C++ and how it is launched, in order, on one stream.

    target is the exact architecture (`sm_90a`). workspace_bytes of scratch (role "workspace") are
    needed, uninitialised; kernels that need zeros clear them in a launch of their own. sizes: what
    a call brings.
    """

    name: str
    source: str
    target: str
    problem: Problem
    schedule: GpuSchedule
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    sizes: tuple[Size, ...] = ()

    def settled(self, problem: Problem) -> Kernel:
        """The kernel of a call whose sizes are those of `problem`: nothing is left to the call."""
        launches = tuple(launch.settled(problem.sizes) for launch in self.launches)
        if problem.is_empty:
            launches = ()
        return replace(self, problem=problem.nominal, launches=launches, sizes=())

    def key(self, compiler: str, flags: tuple[str, ...], version: str) -> str:
        """Hex SHA-256 over source, exact target, compiler with version, flags, our version."""
        digest = hashlib.sha256()
        for part in (self.source, self.target, compiler, *flags, version):
            digest.update(part.encode())
            digest.update(b"\0")
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas reports for one entry: per thread, bytes static, and its diagnostics."""

    entry: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    diagnostics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel with its binaries. `key` is the cache key; `compile_s` is 0.0 from the cache."""

    kernel: Kernel
    key: str
    ptx: str
    cubin: bytes
    resources: tuple[Resources, ...]
    compiler: str
    compile_s: float = 0.0
