"""Single-line mutations of PTX that the compiler emitted: each is found in at least one mode.

A check that never failed on a broken kernel proves nothing. What survives is legal, and is listed
in SURVIVORS one by one with the argument why.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest

from jaxpipe import compiler
from jaxpipe.errors import PtxError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Matmul
from jaxpipe.ptx.run import ADVERSARIAL_MODES
from jaxpipe.runtime.interpreted import check
from jaxpipe.runtime.reference import tolerance
from jaxpipe.schedule import GpuSchedule
from tests.ptx.mutations import Mutation, mutations

HOPPER = GpuSchedule(family="hopper", block_m=128, block_n=128, block_k=64, smem_stages=3)
# Enough trips that every stage is used more than twice, and three tiles for a persistent block.
KERNELS = {
    "sm_80": (
        Matmul(96, 64, 288), GpuSchedule(block_m=64, block_n=64, block_k=32, smem_stages=3)
    ),
    "sm_90a": (Matmul(384, 128, 704), GpuSchedule.parse("persistent_blocks=1", HOPPER)),
    "sm_90a, clusters": (
        Matmul(768, 128, 704), GpuSchedule.parse("cluster_m=2,persistent_blocks=2", HOPPER)
    ),
}  # fmt: skip
LEAST = {"sm_80": 70, "sm_90a": 120, "sm_90a, clusters": 130}  # mutations


@functools.cache
def compiled_for(name: str) -> CompiledKernel:
    problem, schedule = KERNELS[name]
    return compiler.compile_kernel(problem, schedule, name.split(",")[0], line_info=True)


@functools.cache
def mutations_of(name: str) -> tuple[Mutation, ...]:
    return tuple(mutations(compiled_for(name)))


def is_found(compiled: CompiledKernel, ptx: str) -> bool:
    mutated = dataclasses.replace(compiled, ptx=ptx)
    for mode in ADVERSARIAL_MODES:
        try:
            checked = check(mutated, mode)
        except PtxError:
            return True
        if not checked.report.ok or not checked.error <= tolerance(compiled.kernel.problem):
            return True
    return False


# The unrolled main loop takes one wgmma.fence a step. PTX wants one before the first wgmma and
# wherever registers were touched since, but not between products of the same shape that share an
# accumulator; A and B lie in shared memory, where waits for barriers order what wrote them.
FENCES = {
    "drop | wgmma_fence(); | 2": (
        "Second step of the unrolled loop: since the fence of the first step nothing but wgmma of "
        "the same shape touched the accumulators."
    ),
    "drop | wgmma_fence(); | 3": (
        "Third step: between the second and it stand a wait_group, an arrival and a wait for a "
        "full barrier, none of which touches an accumulator."
    ),
    "drop | wgmma_fence(); | 4": (
        "Fourth step: as the third. What a whole trip leaves in registers (the zeroed accumulators "
        "of a new tile among it) is covered by the first step's fence, which is found when dropped."
    ),
}
# name of the mutation -> why the kernel is still right
SURVIVORS: dict[str, dict[str, str]] = {
    "sm_80": {
        "drop | commit_group(); | 5": (
            "The last step of the drain commits a group without copies, so that every wait counts "
            "alike; no wait comes after it, and nothing is in flight when the block ends."
        ),
    },
    "sm_90a": {
        "drop | fence_mbarrier_init(); | 1": (
            "The launch has no clusters: only this block's threads and the copies that they issue "
            "after the __syncthreads() behind it use the barriers, and that orders the inits. "
            "With clusters the other block's arrivals need the fence: there it is found."
        ),
        **FENCES,
    },
    "sm_90a, clusters": FENCES,
}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_unmutated_kernel_passes_in_every_mode(name: str) -> None:
    compiled = compiled_for(name)
    for mode in ADVERSARIAL_MODES:
        checked = check(compiled, mode)
        assert checked.report.ok, [h.text for h in checked.report.hazards]
        assert checked.error <= tolerance(compiled.kernel.problem)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_there_are_mutations_of_every_sort(name: str) -> None:
    sorts = {m.name.split(" | ")[0] for m in mutations_of(name)}
    wanted = {"drop", "one group less", "or for xor", "wraps early", "half a stage"}
    wanted |= {
        "sm_80": {"8 bytes", "the next chunk", "wait after the barrier"},
        "sm_90a": {"no wait", "parity 0", "parity 1", "parity never turns", "count 2", "count 7",
                   "arrive twice", "16384 bytes", "32752 bytes", "32784 bytes"},
    }[name.split(",")[0]]  # fmt: skip
    assert wanted <= sorts
    assert len(mutations_of(name)) >= LEAST[name]
    assert SURVIVORS[name].keys() <= {m.name for m in mutations_of(name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_mutation_is_found_but_what_is_argued_for(name: str) -> None:
    compiled = compiled_for(name)
    survivors = {m.name for m in mutations_of(name) if not is_found(compiled, m.ptx)}
    assert survivors == SURVIVORS[name].keys()
