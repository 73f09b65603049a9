"""CUDA C++ for sm_90a: TMA, mbarrier rings, wgmma, specialised warpgroups.

In: a problem, a legal schedule of family "hopper", the arch. Out: a Kernel, self-contained. The
text is put together from hopper_source (frame, constants), hopper_roles (producer, consumers),
hopper_epilogue and the device files beside this one. It must not know devices or JAX.
"""

from __future__ import annotations

from jaxpipe import dynamic
from jaxpipe.codegen.cuda import Frame, device_file, frame_of, positions, signature
from jaxpipe.codegen.hopper_epilogue import epilogue
from jaxpipe.codegen.hopper_instructions import wgmma_wrapper
from jaxpipe.codegen.hopper_maps import operand_map, result_map
from jaxpipe.codegen.hopper_nest import Nest, take_apart
from jaxpipe.codegen.hopper_roles import consumer, producer
from jaxpipe.codegen.hopper_source import (
    ELEMENT_TYPES,
    Argument,
    constants,
    frame,
    patch_position,
    tile_order,
)
from jaxpipe.codegen.hopper_values import finish_functions, operands, outputs, value_type
from jaxpipe.codegen.reduce import reduce_lines
from jaxpipe.codegen.text import indented
from jaxpipe.dtypes import DTYPES
from jaxpipe.geometry_hopper import Geometry, geometry
from jaxpipe.ir.nodes import Buffer
from jaxpipe.kernel import Kernel, Launch, Pointer, Size, SizeOf, TensorMap
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.transform.recipe import REDUCE_WARPS, Lowered

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
REDUCE_FILES = ("fp8.cuh", "vector.cuh")
ENTRY = "jaxpipe_hopper"
REDUCE_ENTRY = "jaxpipe_reduce"


def emit_hopper(
    problem: Problem, schedule: GpuSchedule, arch: Arch, lowered: tuple[Lowered, ...]
) -> Kernel:
    """The kernel of specialised nests: one launch each, workspace between them."""
    g = geometry(dynamic.bounded(problem), schedule)
    main, *rest = (launch.func for launch in lowered)
    nest = take_apart(main)
    arguments = _arguments(g, nest)
    body = [
        tile_order(g, nest),
        patch_position(g),
        finish_functions(value_type(g), nest.results),
        frame(g, ENTRY, arguments, producer(g, nest), consumer(g, nest, epilogue(g, nest))),
        *(_reduction(frame_of(func)) for func in rest),
    ]
    launches = [_launch(g, arguments), *(_reduction_launch(frame_of(func)) for func in rest)]
    files = (*DEVICE_FILES, *(REDUCE_FILES if rest else ()))
    wrapper = wgmma_wrapper(g.wgmma, g.b.tile, g.a.is_k_major, g.b.is_k_major)
    head = [
        _header(geometry(problem, schedule), arch),
        *(device_file(name) for name in files),
        wrapper,
    ]
    parts = [*head, constants(g, "\n".join(body)), *body]
    source = "\n".join(part for part in parts if part)
    return Kernel(
        ENTRY, source, arch.name, problem, schedule, tuple(launches), _workspace(g), _sizes(g)
    )


def _reduction(launch: Frame) -> str:
    """The second launch of split-K, the same as every family's."""
    lines = [
        *signature(launch.func, REDUCE_ENTRY, 32 * REDUCE_WARPS, 1),
        *indented([*positions(launch, 1), *reduce_lines(launch)]),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _reduction_launch(launch: Frame) -> Launch:
    params = tuple(Pointer(p.role) for p in launch.func.params if p.role is not None)
    return Launch(REDUCE_ENTRY, (launch.blocks(), 1, 1), (32 * REDUCE_WARPS, 1, 1), 0, params)


def _header(g: Geometry, arch: Arch) -> str:
    return f"// {g.problem}\n// {g.schedule}\n// for {arch.name}; emitted by jaxpipe\n"


def _arguments(g: Geometry, nest: Nest) -> tuple[Argument, ...]:
    """Parameters in order: tensor maps, then pointers."""
    maps: list[Argument] = []
    pointers: list[Argument] = []
    for op in (g.a, g.b) if nest.steps else ():
        if op.copy == "tma":
            maps.append(_map_argument(operand_map(g, nest, op)))
        else:
            pointers.append(_pointer(nest.param(op.role), "const "))
    for output in outputs(nest.results):
        if g.has_tma_store:
            maps.append(_map_argument(result_map(g, output.buffer)))
        else:
            pointers.append(_pointer(output.buffer, ""))
    # not restrict: loads that may not pass a barrier stay near their use, out of registers
    read = [_pointer(buffer, "const ", "") for buffer in operands(nest.results)]
    return (*maps, *pointers, *read, *_brought(g))


def _brought(g: Geometry) -> tuple[Argument, ...]:
    """The sizes that a call brings."""
    names = {"m": dynamic.ROWS, "batch0": dynamic.ENTRIES}
    return tuple(Argument(f"int {names[s]}", SizeOf(s)) for s in g.problem.dynamic)


def _map_argument(param: TensorMap) -> Argument:
    return Argument(f"const __grid_constant__ TensorMap {param.role}_map", param)


def _pointer(buffer: Buffer, const: str, restrict: str = "__restrict__ ") -> Argument:
    assert buffer.role is not None
    kind = ELEMENT_TYPES[buffer.dtype]
    return Argument(f"{const}{kind}* {restrict}{buffer.name}", Pointer(buffer.role))


def _launch(g: Geometry, arguments: tuple[Argument, ...]) -> Launch:
    return Launch(
        entry=ENTRY,
        grid=(g.blocks, 1, 1),
        block=(g.schedule.threads, 1, 1),
        shared_bytes=g.shared.total_bytes,
        params=tuple(a.param for a in arguments),
        cluster=(g.cluster, 1, 1),
    )


def _sizes(g: Geometry) -> tuple[Size, ...]:
    entries = g.problem.batch_size // (dynamic.LIMIT if "batch0" in g.problem.dynamic else 1)
    tiles_m = 1 if dynamic.has_rows(g.problem) else g.cluster_tiles_m
    tile_m = g.schedule.block_m * g.schedule.cluster_m
    return dynamic.walked(g.problem, tile_m, entries * tiles_m * g.cluster_tiles_n)


def _workspace(g: Geometry) -> int:
    if not g.stores_partials:
        return 0
    p = g.problem
    return g.schedule.split_k * p.batch_size * p.m * p.n * DTYPES[g.store_dtype].size_bytes
