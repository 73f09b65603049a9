"""A kernel on its way from source to call: Kernel, its launches and parameters, CompiledKernel.

Plain data between the emitters, the toolchain, the interpreter and the launcher. A kernel is its
source text: `Kernel.key` hashes what decides the binary. It must not know the IR, CUDA or JAX.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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


Param = Pointer | Scalar | TensorMap


@dataclass(frozen=True, slots=True)
class Launch:
    """One grid: entry of the source, blocks, threads, dynamic shared bytes, parameters."""

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    params: tuple[Param, ...]
    cluster: Dim3 = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Self-contained CUDA C++ and how it is launched, in order, on one stream.

    target is the exact architecture (`sm_90a`). workspace_bytes of scratch (role "workspace") are
    needed, uninitialised; kernels that need zeros clear them in a launch of their own.
    """

    name: str
    source: str
    target: str
    problem: Problem
    schedule: GpuSchedule
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0

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
