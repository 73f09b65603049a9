"""Runs parsed PTX on the CPU: arguments in, results in the arrays, a Report out.

Arrays are passed by pointer and changed in place; every access is checked against their bounds.
A launch runs on all cores, blocks in parallel. Nothing here needs a GPU, a driver or JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jaxpipe import _native
from jaxpipe.errors import PtxError
from jaxpipe.kernel import Dim3, Launch, Pointer, Scalar, SizeOf, TensorMap
from jaxpipe.kernel import Param as LaunchParam
from jaxpipe.ptx.encode import encode
from jaxpipe.ptx.nodes import Entry, Module, Param
from jaxpipe.ptx.parse import parse
from jaxpipe.ptx.report import Report, make_report, merge
from jaxpipe.ptx.tensor_map import encode_tensor_map

LandingName = Literal["late", "early", "random"]
OrderName = Literal["ascending", "descending", "random"]
LANDINGS: tuple[LandingName, ...] = ("late", "early", "random")
ORDERS: tuple[OrderName, ...] = ("ascending", "descending", "random")
DEFAULT_MAX_STEPS = 1 << 31


@dataclass(frozen=True, slots=True)
class Mode:
    """One way in which time may pass.

    landing: asynchronous copies reach memory as late as the waits allow, at once, or at random.
    order: warps run in ascending or descending order, each as far as it can, or in random turns
    of 1 to 48 instructions. The same seed gives the same run, on any number of threads.
    """

    landing: LandingName = "late"
    order: OrderName = "ascending"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.landing not in LANDINGS or self.order not in ORDERS:
            raise PtxError(f"unknown {self}: landing is one of {LANDINGS}, order of {ORDERS}")


# Modes that together found every fault that single ones found (tests/ptx/test_mutations.py).
ADVERSARIAL_MODES = (
    Mode("late", "ascending"),
    Mode("early", "descending"),
    Mode("random", "random", 1),
)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """An array in global memory.

    written=False: nothing is in it yet; a read of bytes that the kernel has not written is a
    hazard. An array of one uint8 a byte says which bytes are written and is kept up to date.
    writable=False: a store is one. misalignment_bytes shifts its address off the 256-byte
    alignment that allocations have.
    """

    array: np.ndarray
    written: bool | np.ndarray = True
    writable: bool = True
    misalignment_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TensorMapArgument:
    """A tensor map and the buffer that it describes."""

    map: TensorMap
    buffer: np.ndarray | Buffer


@dataclass(frozen=True, slots=True, eq=False)
class PointerArgument:
    """The address of a buffer plus an offset."""

    buffer: np.ndarray | Buffer
    offset_bytes: int = 0


Argument = PointerArgument | np.ndarray | Buffer | TensorMapArgument | int | float | bytes


def run(
    module: Module | str,
    entry: str,
    *,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Argument],
    cluster: Dim3 = (1, 1, 1),
    shared_bytes: int = 0,
    mode: Mode = Mode(),
    checks: bool = True,
    threads: int | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
) -> Report:
    """Executes `entry` of `module` (or of PTX text) once.

    args follow the parameters: arrays (by address, changed in place), integers and floats of the
    parameter's size, tensor maps, or raw bytes. checks=False only computes and counts. threads is
    the number of worker threads (None: all cores). max_steps bounds the warp instructions of a
    cluster. Hazards are returned, not raised; PtxError is for PTX or a launch that cannot be run.
    """
    module = _parsed(module) if isinstance(module, str) else module
    program = _program(module, entry)
    found = module.entries[entry]
    memory = _Memory(module)
    params = _parameter_block(found, args, memory)
    _check_launch(found, block)
    try:
        hazards, counters = program.run(
            buffers=memory.rows,
            params=params,
            grid=grid,
            block=block,
            cluster=cluster,
            dynamic_shared_bytes=shared_bytes,
            landing=LANDINGS.index(mode.landing),
            order=ORDERS.index(mode.order),
            seed=mode.seed,
            check=checks,
            max_steps=max_steps,
            threads=threads if threads is not None else os.cpu_count() or 1,
        )
    except ValueError as error:
        raise PtxError(f"{entry}: {error}") from None
    return make_report(found, hazards, counters)


def run_launches(
    ptx: Module | str,
    launches: Sequence[Launch],
    buffers: Mapping[str, np.ndarray | Buffer],
    mode: Mode = Mode(),
    checks: bool = True,
    threads: int | None = None,
) -> Report:
    """Executes the launches of a kernel in order; `buffers` holds an array for every role.

    Results and workspaces should be given as Buffer(array, written=False): the first launch that
    reads what none has written is reported.
    """
    module = _parsed(ptx) if isinstance(ptx, str) else ptx
    held = {role: _tracked(buffer) for role, buffer in buffers.items()}
    reports = []
    for launch in launches:
        args = [_launch_argument(param, held) for param in launch.params]
        reports.append(
            run(module, launch.entry, grid=launch.grid, block=launch.block, cluster=launch.cluster,
                shared_bytes=launch.shared_bytes, args=args, mode=mode, checks=checks,
                threads=threads)
        )  # fmt: skip
    return merge(reports)


@functools.lru_cache(maxsize=64)
def _program(module: Module, entry: str) -> _native.PtxProgram:
    return encode(module, entry)


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> Module:
    return parse(text)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        raise PtxError(
            f"an array of shape {array.shape} with strides {array.strides} is not contiguous: "
            "pass np.ascontiguousarray of it, or its base with the offset in the kernel"
        )
    return array.reshape(-1).view(np.uint8)


class _Memory:
    """The buffers of one launch, in the order of their addresses; constants of the module first."""

    def __init__(self, module: Module) -> None:
        self.rows: list[tuple[np.ndarray, np.ndarray | None, bool, int]] = []
        self.addresses: dict[int, int] = {}
        for variable in module.globals.values():
            self._add(np.frombuffer(bytearray(variable.data), np.uint8), None, True, 0)

    def _add(
        self, data: np.ndarray, written: np.ndarray | None, writable: bool, misalignment: int
    ) -> int:
        index = _native.PTX_FIRST_BUFFER + len(self.rows)
        self.rows.append((data, written, writable, misalignment))
        return int((index << _native.PTX_BUFFER_SHIFT) + misalignment)

    def address(self, what: np.ndarray | Buffer) -> int:
        """The address of an array; the same array has one address however often it is passed."""
        buffer = what if isinstance(what, Buffer) else Buffer(what)
        key = id(buffer.array)
        if key not in self.addresses:
            data = _bytes_of(buffer.array)
            self.addresses[key] = self._add(
                data, _written_map(buffer, data.size), buffer.writable, buffer.misalignment_bytes
            )
        return self.addresses[key]


def _written_map(buffer: Buffer, size: int) -> np.ndarray | None:
    if isinstance(buffer.written, np.ndarray):
        return buffer.written
    return None if buffer.written else np.zeros(size, np.uint8)


def _argument_bytes(param: Param, value: Argument, memory: _Memory) -> bytes:
    match value:
        case np.ndarray() | Buffer():
            return memory.address(value).to_bytes(8, "little")
        case PointerArgument(buffer, offset_bytes):
            return (memory.address(buffer) + offset_bytes).to_bytes(8, "little")
        case TensorMapArgument(map_, buffer):
            return encode_tensor_map(map_, memory.address(buffer))
        case bytes():
            return value
        case bool() | int() | np.integer():
            bits = 8 * param.size_bytes
            return (int(value) % (1 << bits)).to_bytes(param.size_bytes, "little")
        case float() | np.floating():
            return struct.pack("<d" if param.size_bytes == 8 else "<f", float(value))
        case _:
            raise PtxError(f"parameter {param.name} cannot take a {type(value).__name__}")


def _parameter_block(entry: Entry, args: Sequence[Argument], memory: _Memory) -> bytes:
    if len(args) != len(entry.params):
        raise PtxError(f"{entry.name} has {len(entry.params)} parameters, got {len(args)}")
    block = bytearray(entry.param_bytes)
    for param, value in zip(entry.params, args, strict=True):
        data = _argument_bytes(param, value, memory)
        if len(data) != param.size_bytes:
            raise PtxError(
                f"parameter {param.name} of {entry.name} has {param.size_bytes} bytes, "
                f"got {len(data)}"
            )
        block[param.offset : param.offset + len(data)] = data
    return bytes(block)


def _check_launch(entry: Entry, block: Dim3) -> None:
    threads = block[0] * block[1] * block[2]
    if entry.max_threads and threads > entry.max_threads:
        raise PtxError(
            f"{entry.name} is bound to {entry.max_threads} threads a block, got {threads}"
        )
    if any(entry.required_threads) and block != entry.required_threads:
        raise PtxError(f"{entry.name} requires blocks of {entry.required_threads}, got {block}")


def _tracked(buffer: np.ndarray | Buffer) -> Buffer:
    """The buffer with a map of written bytes that lives across launches."""
    if not isinstance(buffer, Buffer):
        return Buffer(buffer)
    if buffer.written is False:
        return dataclasses.replace(buffer, written=np.zeros(buffer.array.nbytes, np.uint8))
    return buffer


def _launch_argument(param: LaunchParam, buffers: Mapping[str, Buffer]) -> Argument:
    match param:
        case Pointer(role, offset_bytes):
            return PointerArgument(buffers[role], offset_bytes)
        case Scalar("float32", value):
            return float(value)
        case Scalar(_, value):
            return int(value)
        case TensorMap(role=role):
            return TensorMapArgument(param, buffers[role])
        case SizeOf():
            raise PtxError(f"{param} is left to the call: run what Kernel.settled gives")
