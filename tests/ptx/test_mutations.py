"""Single-line mutations of PTX that the compiler emitted: each is found in at least one mode.

A check that never failed on a broken kernel proves nothing. Survivors are listed in LEGAL with the
argument why the line may go.
"""

import dataclasses
import re

import pytest

from jaxpipe import compiler
from jaxpipe.errors import PtxError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Matmul
from jaxpipe.ptx.run import ADVERSARIAL_MODES
from jaxpipe.runtime.interpreted import check
from jaxpipe.runtime.reference import tolerance
from jaxpipe.schedule import GpuSchedule

# Enough trips that every stage is used more than twice.
KERNELS = {
    "sm_80": (
        Matmul(96, 64, 288), GpuSchedule(block_m=64, block_n=64, block_k=32, smem_stages=3)
    ),
    "sm_90a": (
        Matmul(192, 128, 640),
        GpuSchedule(family="hopper", block_m=128, block_n=128, block_k=64, smem_stages=3),
    ),
}  # fmt: skip
DROPPED = (
    r"\bbar\.sync", r"cp\.async\.wait_group", r"cp\.async\.commit_group", r"wgmma\.fence",
    r"wgmma\.wait_group", r"wgmma\.commit_group", r"mbarrier\.arrive", r"mbarrier\.init",
    r"fence\.proxy\.async", r"cp\.async\.bulk\.wait_group", r"cp\.async\.bulk\.commit_group",
)  # fmt: skip


def compiled_for(name: str) -> CompiledKernel:
    problem, schedule = KERNELS[name]
    return compiler.compile_kernel(problem, schedule, name)


def mutations(ptx: str) -> list[tuple[str, str]]:
    """(name, mutated PTX) of every single-line mutation."""
    lines = ptx.split("\n")
    found = []
    for index, line in enumerate(lines):
        if line.lstrip().startswith("//"):
            continue
        for new in _mutated(line):
            changed = [*lines[:index], new, *lines[index + 1 :]]
            found.append((f"{index + 1}: {line.strip()} -> {new.strip()}", "\n".join(changed)))
    return found


def _mutated(line: str) -> list[str]:
    out = ["" for pattern in DROPPED if re.search(pattern, line)][:1]
    if (m := re.search(r"(wait_group(?:\.read)?(?:\.sync\.aligned)?\s+)(\d+);", line)) and int(
        m.group(2)
    ) < 8:
        out.append(line.replace(m.group(0), f"{m.group(1)}{int(m.group(2)) + 1};"))
    if m := re.search(r"mbarrier\.try_wait\S*\s+(\S+),", line):
        out.append(f"setp.eq.u32 {m.group(1)}, 0, 0;")
    return out


def is_found(compiled: CompiledKernel, ptx: str) -> bool:
    mutated = dataclasses.replace(compiled, ptx=ptx)
    for mode in ADVERSARIAL_MODES:
        try:
            checked = check(mutated, mode)
        except PtxError:
            return True
        if not checked.report.ok or checked.error > tolerance(compiled.kernel.problem):
            return True
    return False


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_unmutated_kernel_passes_in_every_mode(name: str) -> None:
    compiled = compiled_for(name)
    for mode in ADVERSARIAL_MODES:
        checked = check(compiled, mode)
        assert checked.report.ok, [h.text for h in checked.report.hazards]
        assert checked.error <= tolerance(compiled.kernel.problem)


# Classes of survivors, with the reason that is thought to make the line redundant in these shapes.
# They are held by number, so that a new survivor fails the test.
SURVIVORS: dict[str, dict[str, int]] = {
    "sm_80": {
        "cp.async.commit_group": 1,  # its copies join the next group, which is waited for too
    },
    "sm_90a": {
        "wgmma.fence": 3,  # no register was touched since the fence before
        "mbarrier.arrive": 1,  # the last release of a stage, for which nobody waits
        "cp.async.bulk.wait_group": 4,  # one result tile a block: panels are not used again
        "cp.async.bulk.commit_group": 1,  # its store joins the next group
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_mutation_but_the_known_survivors_is_found(name: str) -> None:
    compiled = compiled_for(name)
    found = mutations(compiled.ptx)
    survivors = [what for what, ptx in found if not is_found(compiled, ptx)]
    counts = {
        kind: sum(f": {kind}" in what for what in survivors) for kind in SURVIVORS[name]
    }  # fmt: skip
    assert sum(counts.values()) == len(survivors), survivors
    assert counts == SURVIVORS[name], survivors
