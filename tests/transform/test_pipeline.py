"""The five steps: what the pass writes, and that each of its parts is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from jaxpipe.errors import IrError
from jaxpipe.ir.interpret import interpret
from jaxpipe.ir.nodes import (
    Acquire,
    Barrier,
    Commit,
    CommitGroup,
    Copy,
    For,
    Func,
    If,
    Release,
    Stmt,
    Wait,
    WaitGroup,
)  # fmt: skip
from jaxpipe.ir.printer import to_text
from jaxpipe.ir.visit import buffers, rewrite, walk
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.transform.lower_sync import lower_sync
from jaxpipe.transform.recipe import lower_ampere
from tests.drawn import assert_equal, expected, inputs

SM_80 = arch("sm_80")
PROBLEM = Matmul(16, 16, 6 * 32 - 5, lhs=Layout(ld=6 * 32))  # a k tail, rows aligned
FULL = GpuSchedule(block_m=16, block_n=16, block_k=32, warps_m=1, warps_n=1, smem_stages=3)


def stage(name: str, schedule: GpuSchedule = FULL, problem: Problem = PROBLEM) -> Func:
    return dict(lower_ampere(problem, schedule, SM_80)[0].stages)[name]


def kinds(func: Func) -> list[str]:
    names = (Acquire, Commit, Wait, Release, CommitGroup, WaitGroup, Barrier, For)
    return [type(s).__name__ for s in walk(func.body) if isinstance(s, names)]


def changed(func: Func, rule: Callable[[Stmt], tuple[Stmt, ...]]) -> Func:
    return replace(func, body=rewrite(func.body, rule))


def run(func: Func) -> None:
    arrays = inputs(PROBLEM, 0)
    assert_equal(PROBLEM, interpret((func,), arrays), expected(PROBLEM, arrays))


# ---------------------------------------------------------------------- the five steps
def test_step_1_expands_buffers_by_their_stages() -> None:
    found = buffers(stage("pipelined"))
    assert [found[n].stages for n in ("lhs_shared", "rhs_shared", "lhs_reg", "rhs_reg")] == [
        3, 3, 2, 2,
    ]  # fmt: skip


def test_steps_2_and_3_shift_and_wrap_the_copies() -> None:
    text = to_text(stage("pipelined"))
    assert "copy lhs_shared{(ko + 2) % 3}[0 :+ 16, 0 :+ 32] <- lhs[m0 * 16" in text
    assert "ko * 32 + 64 :+ 32] (async)" in text
    assert "if ko + 2 < 6" in text


def test_the_inner_index_carries_into_the_outer_stage() -> None:
    assert "lhs_shared{((ki + 1) / 2 + ko) % 3}" in to_text(stage("pipelined"))


def test_step_4_hoists_the_inner_prologue_out_of_the_outer_loop() -> None:
    func = stage("pipelined")
    loops = [s for s in walk(func.body) if isinstance(s, For) and s.kind == "serial"]
    outside = [s for s in walk(func.body) if isinstance(s, Copy) and s.dst.buffer == "lhs_reg"]
    inside = [s for s in walk(loops[0].body) if isinstance(s, Copy) and s.dst.buffer == "lhs_reg"]
    assert (len(outside), len(inside)) == (2, 1)


def test_step_5_waits_before_the_first_read_and_again_where_the_prefetch_crosses() -> None:
    text = to_text(stage("pipelined"))
    assert text.index("wait smem") < text.index("copy lhs_reg") < text.index("for ko")
    assert "if 0 < ki and ko + 1 < 6" in text


def test_a_convolution_streams_over_one_linearised_counter() -> None:
    problem = Conv2d(1, 6, 6, 40, 16, (3, 2), padding=((1, 1), (1, 1)))
    text = to_text(stage("pipelined", replace(FULL, smem_stages=2), problem))
    assert "for step in serial(12)" in text
    assert "(step + 1) / 4, ((step + 1) / 2) % 2, ((step + 1) % 2) * 32 :+ 32] (async)" in text
    assert "lhs_shared{(step + 1) % 2}" in text


# ---------------------------------------------------------------------- the ablations
@pytest.mark.parametrize(
    ("stages", "reg_stages"), [(1, 1), (1, 2), (2, 1), (4, 1), (2, 2), (4, 2), (8, 2)]
)
def test_every_ablation_is_the_same_product(stages: int, reg_stages: int) -> None:
    schedule = replace(FULL, smem_stages=stages, reg_stages=reg_stages)
    for name in ("pipelined", "lowered"):
        run(stage(name, schedule))


@pytest.mark.parametrize("reg_stages", [1, 2])
@pytest.mark.parametrize("stages", range(2, 7))
def test_a_step_has_one_barrier_with_loads_in_flight_across_it(
    stages: int, reg_stages: int
) -> None:
    problem = Matmul(16, 16, 32 * 20)
    func = stage("lowered", replace(FULL, smem_stages=stages, reg_stages=reg_stages), problem)
    steady = next(s for s in walk(func.body) if isinstance(s, For) and s.kind == "serial")
    inside = list(walk(steady.body))
    assert sum(isinstance(s, Barrier) for s in inside) == 1
    assert [s.pending for s in inside if isinstance(s, WaitGroup)] == [stages - 2]
    assert not any(isinstance(s, If) for s in inside)


def test_without_stages_a_step_needs_two_barriers() -> None:
    func = stage("lowered", replace(FULL, smem_stages=1))
    steady = next(s for s in walk(func.body) if isinstance(s, For) and s.kind == "serial")
    assert kinds(replace(func, body=steady.body)) == [
        "Barrier", "CommitGroup", "WaitGroup", "Barrier",
    ]  # fmt: skip


# ---------------------------------------------------------------------- every part is needed
def without(kind: type, position: int) -> Callable[[Func], Func]:
    """Drop the position-th statement of a kind."""

    def mutate(func: Func) -> Func:
        seen = [0]

        def rule(statement: Stmt) -> tuple[Stmt, ...]:
            if not isinstance(statement, kind):
                return (statement,)
            seen[0] += 1
            return () if seen[0] == position + 1 else (statement,)

        mutated = changed(func, rule)
        assert mutated != func, "nothing was changed"
        return mutated

    return mutate


def weaker_waits(func: Func) -> Func:
    return changed(
        func, lambda s: (WaitGroup(s.pending + 1),) if isinstance(s, WaitGroup) else (s,)
    )


FAULTS: dict[str, tuple[str, Callable[[Func], Func]]] = {
    "no acquire": ("pipelined", without(Release, 0)),
    "no wait before the prologue's read": ("pipelined", without(Wait, 0)),
    "no commit": ("pipelined", without(Commit, 1)),
    "waits one group too few": ("lowered", weaker_waits),
    "no barrier after the first wait": ("lowered", without(Barrier, 0)),
    "no barrier in the steady state": ("lowered", without(Barrier, 1)),
    "no commit in the prologue": ("lowered", without(CommitGroup, 0)),
    "no commit in the tail": ("lowered", without(CommitGroup, 3)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_interpreter_finds(fault: str) -> None:
    name, mutate = FAULTS[fault]
    run(stage(name))
    with pytest.raises((IrError, AssertionError)):
        run(mutate(stage(name)))


def test_lowering_refuses_a_wait_without_a_commit() -> None:
    func = replace(stage("nest"), body=(Wait("smem"),))
    with pytest.raises(IrError, match="no Commit before it"):
        lower_sync(func)


def test_reading_what_is_in_flight_names_the_statement() -> None:
    with pytest.raises(IrError, match=r"lhs_shared is read while .* at `copy lhs_reg"):
        run(without(Wait, 0)(stage("pipelined")))


def test_results_do_not_depend_on_what_lies_outside() -> None:
    arrays = inputs(PROBLEM, 1)
    got = interpret((stage("lowered"),), arrays)["out"]
    assert np.isfinite(got).all()
