"""CUDA C++ for sm_90a: TMA, mbarrier rings, wgmma, specialised warpgroups.

In: a problem, a legal schedule of family "hopper", the arch. Out: a Kernel, self-contained. The
text is put together from hopper_source (frame, constants), hopper_roles (producer, consumers),
hopper_epilogue and the device files beside this one. It must not know devices or JAX.
"""

from __future__ import annotations

import functools
from importlib import resources

from jaxpipe.codegen.hopper_epilogue import epilogue, finish_functions, outputs
from jaxpipe.codegen.hopper_instructions import wgmma_wrapper
from jaxpipe.codegen.hopper_maps import operand_map, result_map
from jaxpipe.codegen.hopper_reduce import reduction, reduction_launch
from jaxpipe.codegen.hopper_roles import consumer, producer
from jaxpipe.codegen.hopper_source import (
    ELEMENT_TYPES,
    Argument,
    constants,
    frame,
    patch_position,
    tile_order,
)
from jaxpipe.geometry_hopper import Geometry, geometry
from jaxpipe.kernel import BufferRole, Kernel, Launch, Pointer
from jaxpipe.problem import DTYPES, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch

DEVICE_FILES = (
    "epilogue_math.cuh",
    "hopper_barrier.cuh",
    "hopper_ring.cuh",
    "hopper_sync.cuh",
    "hopper_tma.cuh",
    "hopper_copy.cuh",
    "hopper_wgmma.cuh",
    "hopper_epilogue.cuh",
)
ENTRY = "jaxpipe_hopper"


def emit_hopper(problem: Problem, schedule: GpuSchedule, arch: Arch) -> Kernel:
    """The kernel of `problem` under `schedule`, which legality must have admitted."""
    g = geometry(problem, schedule)
    arguments = _arguments(g)
    launches = [_launch(g, arguments)]
    body = [
        tile_order(g),
        patch_position(g),
        finish_functions(g),
        frame(g, ENTRY, arguments, producer(g), consumer(g, epilogue(g))),
    ]
    if g.stores_partials:
        body.append(reduction(g))
        launches.append(reduction_launch(g))
    wrapper = wgmma_wrapper(g.wgmma, g.b.tile, g.a.is_k_major, g.b.is_k_major)
    head = [_header(g, arch), *(device_file(name) for name in DEVICE_FILES), wrapper]
    text = [*head, constants(g, "\n".join(body)), *body]
    source = "\n".join(part for part in text if part)
    return Kernel(ENTRY, source, arch.name, problem, schedule, tuple(launches), _workspace(g))


@functools.cache
def device_file(name: str) -> str:
    """Text of one file of codegen/device."""
    return (resources.files("jaxpipe.codegen") / "device" / name).read_text()


def _header(g: Geometry, arch: Arch) -> str:
    return f"// {g.problem}\n// {g.schedule}\n// for {arch.name}; emitted by jaxpipe\n"


def _arguments(g: Geometry) -> tuple[Argument, ...]:
    """Parameters in order: tensor maps, then pointers."""
    maps: list[Argument] = []
    pointers: list[Argument] = []
    if g.k_tiles:
        for op in (g.a, g.b):
            if op.copy == "tma":
                maps.append(_map_argument(op.role, operand_map(g, op)))
            else:
                pointers.append(_pointer(op.role, g.problem.dtype, "const "))
    for role, _ in outputs(g):
        if g.has_tma_store:
            maps.append(_map_argument(role, result_map(g, role)))
        else:
            pointers.append(_pointer(role, g.store_dtype, ""))
    if not g.stores_partials:
        pointers += _epilogue_arguments(g)
    return (*maps, *pointers)


def _epilogue_arguments(g: Geometry) -> list[Argument]:
    e, p = g.problem.epilogue, g.problem
    wanted: list[tuple[BufferRole, str]] = []
    if e.bias != "none":
        wanted.append(("bias", p.bias_dtype))
    if e.residual:
        wanted.append(("residual", p.out_dtype))
    return [_pointer(role, dtype, "const ") for role, dtype in wanted]


def _map_argument(role: BufferRole, param: object) -> Argument:
    return Argument(f"const __grid_constant__ TensorMap {role}_map", param)  # type: ignore[arg-type]


def _pointer(role: BufferRole, dtype: str, const: str) -> Argument:
    return Argument(f"{const}{ELEMENT_TYPES[dtype]}* __restrict__ {role}", Pointer(role))


def _launch(g: Geometry, arguments: tuple[Argument, ...]) -> Launch:
    return Launch(
        entry=ENTRY,
        grid=(g.blocks, 1, 1),
        block=(g.schedule.threads, 1, 1),
        shared_bytes=g.shared.total_bytes,
        params=tuple(a.param for a in arguments),
        cluster=(g.cluster, 1, 1),
    )


def _workspace(g: Geometry) -> int:
    if not g.stores_partials:
        return 0
    p = g.problem
    return g.schedule.split_k * p.batch_size * p.m * p.n * DTYPES[g.store_dtype].size_bytes
