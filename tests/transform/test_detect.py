"""The three rules: every way to fail each, and the order of pipelining and fusion."""

from dataclasses import replace

import pytest

from jaxpipe.ir.affine import const, var
from jaxpipe.ir.nodes import (
    Alloc,
    Buffer,
    Copy,
    Elementwise,
    For,
    Func,
    LoopKind,
    Mma,
    Region,
    Step,
    Stmt,
)
from jaxpipe.ir.visit import buffers, rewrite
from jaxpipe.problem import Matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.transform.build import build, register
from jaxpipe.transform.cache_read import cache_read
from jaxpipe.transform.detect import Verdict, verdicts
from jaxpipe.transform.fuse import fuse_producers
from jaxpipe.transform.recipe import cache_reads, lower_ampere
from jaxpipe.transform.tile import Split, tile

SM_80, SM_90A = arch("sm_80"), arch("sm_90a")
PROBLEM = Matmul(64, 64, 256)
SCHEDULE = GpuSchedule(block_m=64, block_n=64, smem_stages=3)


def tiled(problem: Matmul = PROBLEM, k_kind: LoopKind = "serial") -> Func:
    func = cache_reads(build(problem), SCHEDULE)
    func = tile(func, Split("m", 64, "m0", "grid"))
    func = tile(func, Split("n", 64, "n0", "grid"))
    func = tile(func, Split("k", 32, "ko", k_kind))
    return tile(func, Split("k", 16, "ki", "serial", registers_only=True))


def judge(func: Func, stages: int = 3, name: str = "lhs_shared", target=SM_80) -> Verdict:  # type: ignore[no-untyped-def]
    asked = {"lhs_shared": stages, "rhs_shared": 3}
    return next(v for v in verdicts(func, asked, target) if v.buffer == name)


def failed(verdict: Verdict) -> list[str]:
    return [r.rule[0] for r in verdict.rules if not r.holds]


def test_a_tiled_product_is_pipelined_at_both_levels() -> None:
    found = lower_ampere(PROBLEM, SCHEDULE, SM_80)[0].verdicts
    assert [(v.buffer, v.granted) for v in found] == [
        ("lhs_shared", 3), ("rhs_shared", 3), ("lhs_reg", 2), ("rhs_reg", 2),
    ]  # fmt: skip
    assert all(r.holds and r.reason for v in found for r in v.rules)


def test_rule_1_refuses_a_buffer_that_is_computed() -> None:
    def compute(statement: Stmt) -> tuple[Stmt, ...]:
        match statement:
            case Copy(dst=Region("lhs_shared"), src=src):
                return (Elementwise(statement.dst, src, Step("relu")),)
            case _:
                return (statement,)

    func = tiled()
    verdict = judge(replace(func, body=rewrite(func.body, compute)))
    assert failed(verdict) == ["1"]
    assert "computed, not copied" in str(verdict)
    assert not verdict.is_pipelined


def test_rule_1_refuses_a_copy_that_blocks() -> None:
    verdict = judge(tiled(), target=replace(SM_80, has_cp_async=False))
    assert failed(verdict) == ["1"]
    assert "it blocks" in str(verdict)


def test_rule_2_refuses_a_tile_that_is_filled_once() -> None:
    tile_buffer = Buffer("stencil", "shared", "bfloat16", ("m", "k"), (64, 32))
    region = Region("stencil", (const(0), const(0)), (64, 32))
    func = tiled()
    once = Copy(region, Region("lhs", (const(0), const(0)), (64, 32)), "async")

    def fill_once(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        match body:
            case (For(kind="grid") as loop,):
                return (replace(loop, body=fill_once(loop.body)),)
            case _:
                return (Alloc(tile_buffer), once, *body)

    func = replace(func, body=fill_once(func.body))
    (verdict,) = verdicts(func, {"stencil": 3}, SM_80)
    assert failed(verdict) == ["2"]
    assert "filled in parallel loop n0: once" in str(verdict)


@pytest.mark.parametrize(("kind", "reason"), [("unrolled", "is unrolled, not sequential"),
                                              ("grid", "parallel loop ko")])  # fmt: skip
def test_rule_2_refuses_loops_that_are_not_sequential(kind: LoopKind, reason: str) -> None:
    func = tiled()

    def change(statement: Stmt) -> tuple[Stmt, ...]:
        match statement:
            case For(var="ko"):
                return (replace(statement, kind=kind),)
            case _:
                return (statement,)

    verdict = judge(replace(func, body=rewrite(func.body, change)))
    assert failed(verdict) == ["2"]
    assert reason in str(verdict)


def test_rule_3_refuses_unlike_stages_where_a_scope_synchronises_as_one() -> None:
    func = tiled()
    assert failed(judge(func, stages=4)) == ["3"]
    assert failed(judge(func, stages=4, name="rhs_shared")) == ["3"]
    assert "synchronises a whole scope" in str(judge(func, stages=4))


def test_rule_3_refuses_unlike_positions() -> None:
    func = with_second_use(tiled())
    verdict = judge(func)
    assert failed(verdict) == ["3"]
    assert "used at 0..1" in str(verdict)


@pytest.mark.parametrize("stages", [3, 4])
def test_a_target_with_a_barrier_for_each_buffer_is_not_bound_by_rule_3(stages: int) -> None:
    func = with_second_use(tiled())
    verdict = judge(func, stages, target=SM_90A)
    assert verdict.granted == stages
    assert "has a barrier for each buffer" in str(verdict)


def with_second_use(func: Func) -> Func:
    """lhs_shared is read in a second inner loop, rhs_shared only in the first."""
    copy_of = register("lhs_again", "bfloat16", ("m", "k"), (64, 16))
    region = Region("lhs_again", (const(0), const(0)), (64, 16))
    source = Region("lhs_shared", (const(0), var("kj") * 16), (64, 16))
    loop = For("kj", 0, 2, "serial", (Copy(region, source),))

    def change(statement: Stmt) -> tuple[Stmt, ...]:
        match statement:
            case For(var="ko", body=body):
                return (Alloc(copy_of), replace(statement, body=(*body, loop)))
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, change))


def test_short_loops_get_as_many_stages_as_they_have_steps() -> None:
    verdict = judge(tiled(Matmul(64, 64, 64)), stages=3)
    assert verdict.granted == 2
    assert "loop ko has 2 steps: 2 of 3 stages" in str(verdict)


def test_fusing_a_producer_before_pipelining_makes_the_copy_compute() -> None:
    nest = build(replace(PROBLEM, dtype="float32", precision="tf32"))
    early = cache_read(nest, "lhs_tf32", "lhs_shared", "shared", mode="async")
    early = tile(fuse_producers(early), Split("k", 32, "ko", "serial"))
    (verdict,) = verdicts(early, {"lhs_shared": 3}, SM_80)
    assert failed(verdict) == ["1"]
    assert "the copy computes (round_tf32)" in str(verdict)


def test_pipelining_before_fusion_keeps_the_copy_pure() -> None:
    problem = replace(PROBLEM, dtype="float32", precision="tf32")
    schedule = replace(SCHEDULE, block_k=16)
    lowered = lower_ampere(problem, schedule, SM_80)[0]
    shared, fragment = lowered.verdicts[0], lowered.verdicts[2]
    assert (shared.granted, fragment.granted) == (3, 2)
    copies = [s for s in _walk(lowered.func) if isinstance(s, Copy)]
    into_shared = [c for c in copies if buffers(lowered.func)[c.dst.buffer].scope == "shared"]
    assert all(not c.steps and c.mode == "async" for c in into_shared)
    assert any(c.steps for c in copies)


def _walk(func: Func) -> list[Stmt]:
    found: list[Stmt] = []
    rewrite(func.body, lambda s: (found.append(s), (s,))[1])  # type: ignore[func-returns-value]
    assert any(isinstance(s, Mma) for s in found)
    return found
