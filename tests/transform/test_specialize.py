"""Producer and consumer roles: the same meaning in every order of going on, and what refuses."""

import textwrap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import IrError
from jaxpipe.ir.interpret import interpret
from jaxpipe.ir.nodes import Commit, Func, If, Release, Role, Stmt, Wait, WaitMma
from jaxpipe.ir.printer import to_text
from jaxpipe.ir.visit import Body, rewrite, walk
from jaxpipe.problem import Conv2d, Layout, Matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.transform.build import build
from jaxpipe.transform.detect import verdicts
from jaxpipe.transform.fuse import fuse_producers
from jaxpipe.transform.recipe_hopper import cache_reads, lower_hopper
from jaxpipe.transform.specialize import absorb_rounding, specialize
from jaxpipe.transform.tile import Split, tile

SM_90A = arch("sm_90a")
SMALL = GpuSchedule(family="hopper", block_m=8, block_n=8, block_k=4)


def lowered(problem: Matmul | Conv2d, stages: int = 3, in_flight: int = 1) -> Func:
    schedule = replace(SMALL, smem_stages=stages, reg_stages=in_flight + 1)
    return lower_hopper(problem, schedule, SM_90A)[0].func


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


def inputs(problem: Matmul, seed: int) -> dict[str, np.ndarray]:
    lhs, rhs = integers((problem.m, problem.k), seed), integers((problem.k, problem.n), seed + 1)
    return {
        "lhs": lhs.T if problem.lhs.transposed else lhs,
        "rhs": rhs.T if problem.rhs.transposed else rhs,
        "bias": integers((problem.n,), seed + 2),
    }


@settings(deadline=None, max_examples=60)
@given(
    m=st.integers(1, 20), n=st.integers(1, 20), k=st.integers(0, 40),
    stages=st.integers(1, 8), in_flight=st.integers(0, 1), seed=st.integers(0, 2**16),
    lhs_t=st.booleans(), rhs_t=st.booleans(),
)  # fmt: skip
def test_roles_mean_the_product_in_every_order(
    m: int, n: int, k: int, stages: int, in_flight: int, seed: int, lhs_t: bool, rhs_t: bool
) -> None:
    problem = Matmul(
        m, n, k, dtype="float16", out_dtype="float32", lhs=Layout(lhs_t), rhs=Layout(rhs_t),
        epilogue=Epilogue(bias="column", activation="relu"),
    )  # fmt: skip
    func = lowered(problem, max(stages, in_flight + 1), in_flight)
    given_ = inputs(problem, seed)
    lhs = given_["lhs"].T if lhs_t else given_["lhs"]
    rhs = given_["rhs"].T if rhs_t else given_["rhs"]
    expected = np.maximum(lhs @ rhs + given_["bias"], 0)
    np.testing.assert_array_equal(interpret((func,), given_, seed)["out"], expected)


ROLES = """\
role producer
  for ko in serial(8)
    acquire smem
    copy lhs_shared{ko % 3}[0 :+ 8, 0 :+ 4] <- lhs[m0 * 8 :+ 8, ko * 4 :+ 4] (async)
    copy rhs_shared{ko % 3}[0 :+ 4, 0 :+ 8] <- rhs[ko * 4 :+ 4, n0 * 8 :+ 8] (async)
    commit smem
role consumer
  fill acc[0 :+ 8, 0 :+ 8] = 0
  for ko in serial(8)
    wait smem
    mma acc[0 :+ 8, 0 :+ 8] += lhs_shared{ko % 3}[0 :+ 8, 0 :+ 4] @ rhs_shared{ko % 3}[0 :+ 4, 0 :+ 8]
    wait_mma 1
    if 0 < ko
      release smem
  wait_mma 0
  release smem
  store out[m0 * 8 :+ 8, n0 * 8 :+ 8] <- acc[0 :+ 8, 0 :+ 8]
"""  # noqa: E501


def test_the_nest_is_one_producer_and_one_consumer() -> None:
    text = to_text(lowered(Matmul(16, 16, 32)))
    assert textwrap.dedent(text[text.index("        role producer") :]) == ROLES


def test_a_convolution_streams_through_one_ring() -> None:
    conv = Conv2d(2, 5, 6, 4, 8, (3, 3), padding=((1, 1), (1, 1)), dtype="float16",
                  out_dtype="float32")  # fmt: skip
    image, weights = integers((2, 5, 6, 4), 1), integers((3, 3, 4, 8), 2)
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = np.einsum("nhwcrs,rsco->nhwo", windows, weights).reshape(conv.m, conv.n)
    got = interpret((lowered(conv),), {"lhs": image, "rhs": weights}, 5)["out"]
    np.testing.assert_array_equal(got, expected)


def test_split_k_adds_partials_of_equal_length() -> None:
    problem = Matmul(9, 10, 26, dtype="float16", out_dtype="float32")
    schedule = replace(SMALL, split_k=3)
    funcs = tuple(launch.func for launch in lower_hopper(problem, schedule, SM_90A))
    given_ = inputs(problem, 3)
    expected = given_["lhs"] @ given_["rhs"]
    np.testing.assert_array_equal(interpret(funcs, given_)["out"], expected)


# ---------------------------------------------------------------- faults that must be seen
def without(func: Func, kind: type[Stmt], position: int = 0) -> Func:
    """`func` without the position-th statement of a kind."""
    wanted = [s for s in walk(func.body) if isinstance(s, kind)][position]

    def rule(statement: Stmt) -> Body:
        return () if statement is wanted else (statement,)

    return replace(func, body=rewrite(func.body, rule))


def unguarded(func: Func) -> Func:
    """`func` whose loop releases the slot of the product that is still in flight."""

    def rule(statement: Stmt) -> Body:
        match statement:
            case If(body=(Release() as release,)):
                return (release,)
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (lambda f: without(f, Wait), "read while it(s copy is in flight| holds nothing)"),
        (lambda f: without(f, Commit), "deadlock: producer, consumer|deadlock: consumer"),
        (lambda f: without(f, WaitMma), "released while a product in flight reads it"),
        (lambda f: without(f, WaitMma, 1), "a product (is )?in flight"),
        (lambda f: without(without(f, Release, 1), Release), "deadlock: producer, consumer"),
        (unguarded, "released while a product in flight reads it"),
    ],
)
def test_a_broken_ring_is_seen(broken: object, match: str) -> None:
    problem = Matmul(8, 8, 32, dtype="float16")
    with pytest.raises(IrError, match=match):
        interpret((broken(lowered(problem)),), inputs(problem, 0), 1)  # type: ignore[operator]


# ---------------------------------------------------------------- verdicts and refusals
def test_a_barrier_for_each_buffer_lifts_the_third_rule() -> None:
    found = lower_hopper(Matmul(16, 16, 64), SMALL, SM_90A)[0].verdicts
    assert [v.rules[2].reason for v in found] == ["sm_90a has a barrier for each buffer"] * 2
    assert [v.granted for v in found] == [4, 4]


def tf32_nest(*, absorbed: bool) -> Func:
    nest = build(Matmul(16, 16, 64, dtype="float32", precision="tf32", rhs=Layout(True)))
    nest = absorb_rounding(cache_reads(nest)) if absorbed else fuse_producers(nest)
    nest = nest if absorbed else cache_reads(nest)
    return tile(nest, Split("k", 8, "ko", "serial"))


def test_rounding_in_the_copy_engine_keeps_the_copy_pure() -> None:
    found = verdicts(tf32_nest(absorbed=True), {"lhs_shared": 4, "rhs_shared": 4}, SM_90A)
    assert all(v.is_pipelined for v in found)
    assert "round_tf32" not in to_text(tf32_nest(absorbed=True))


def test_a_nest_without_a_pipelined_loop_is_refused() -> None:
    with pytest.raises(IrError, match="has no pipelined loop"):
        specialize(build(Matmul(8, 8, 8)), 4, 1)


def test_products_in_flight_must_leave_a_slot() -> None:
    with pytest.raises(IrError, match="2 products in flight hold all 2 slots"):
        specialize(lower_hopper(Matmul(8, 8, 32), SMALL, SM_90A)[0].stages[-2][1], 2, 2)


def test_a_ring_may_be_deeper_than_one_tile_needs() -> None:
    func = lowered(Matmul(8, 8, 4), stages=6)
    assert "x 6 stages" in to_text(func)
    assert sum(isinstance(s, Role) for s in walk(func.body)) == 2
