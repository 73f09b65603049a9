"""CUDA C++ for sm_90a: TMA, mbarrier rings, wgmma, specialised warpgroups.

In: a problem, a legal schedule of family "hopper", the arch. Out: a Kernel, self-contained. The
text is put together from hopper_source (frame, constants), hopper_roles (producer, consumers),
hopper_epilogue and the device files beside this one. It must not know devices or JAX.
"""

from __future__ import annotations

import functools
from importlib import resources

from jaxpipe.codegen.hopper_epilogue import (
    epilogue,
    finish_functions,
    operands,
    outputs,
    value_type,
)
from jaxpipe.codegen.hopper_instructions import wgmma_wrapper
from jaxpipe.codegen.hopper_maps import operand_map, result_map
from jaxpipe.codegen.hopper_nest import Nest, take_apart
from jaxpipe.codegen.hopper_reduce import reduction
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
from jaxpipe.ir.nodes import Buffer
from jaxpipe.kernel import Kernel, Launch, Pointer, TensorMap
from jaxpipe.problem import DTYPES, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.transform.recipe_hopper import lower_hopper

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
    main, *rest = lower_hopper(problem, schedule, arch)
    nest = take_apart(main.func)
    arguments = _arguments(g, nest)
    launches = [_launch(g, arguments)]
    body = [
        tile_order(g, nest),
        patch_position(g),
        finish_functions(value_type(g), nest.results),
        frame(g, ENTRY, arguments, producer(g, nest), consumer(g, nest, epilogue(g, nest))),
    ]
    for lowered in rest:
        text, launch = reduction(g, lowered.func)
        body.append(text)
        launches.append(launch)
    wrapper = wgmma_wrapper(g.wgmma, g.b.tile, g.a.is_k_major, g.b.is_k_major)
    head = [_header(g, arch), *(device_file(name) for name in DEVICE_FILES), wrapper]
    parts = [*head, constants(g, "\n".join(body)), *body]
    source = "\n".join(part for part in parts if part)
    return Kernel(ENTRY, source, arch.name, problem, schedule, tuple(launches), _workspace(g))


@functools.cache
def device_file(name: str) -> str:
    """Text of one file of codegen/device."""
    return (resources.files("jaxpipe.codegen") / "device" / name).read_text()


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
    return (*maps, *pointers, *(_pointer(buffer, "const ") for buffer in operands(nest.results)))


def _map_argument(param: TensorMap) -> Argument:
    return Argument(f"const __grid_constant__ TensorMap {param.role}_map", param)


def _pointer(buffer: Buffer, const: str) -> Argument:
    assert buffer.role is not None
    kind = ELEMENT_TYPES[buffer.dtype]
    return Argument(f"{const}{kind}* __restrict__ {buffer.name}", Pointer(buffer.role))


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
