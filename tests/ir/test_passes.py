"""The meaning of a nest survives every pass: the numpy interpreter against numpy."""

from dataclasses import replace

import pytest

from jaxpipe import legality
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.ir.interpret import interpret
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.transform.recipe import lower_ampere
from tests.drawn import assert_equal, draw, draw_residual_first, expected, inputs

STAGES = ("nest", "cache_read", "tiled", "pipelined", "fused", "lowered")


def check(problem: Problem, schedule: GpuSchedule, target: Arch, seed: int) -> None:
    arrays = inputs(problem, seed)
    want = expected(problem, arrays)
    main, *rest = lower_ampere(problem, schedule, target)
    assert [name for name, _ in main.stages] == list(STAGES)
    for _, func in main.stages:
        got = interpret((func, *(launch.func for launch in rest)), arrays)
        assert_equal(problem, got, want)


@pytest.mark.parametrize("seed", range(60))
def test_every_stage_of_a_drawn_problem_equals_numpy(seed: int) -> None:
    check(*draw(seed), seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_residual_before_the_activation_survives_every_pass(seed: int) -> None:
    check(*draw_residual_first(seed), seed)


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_a_derivative_survives_every_pass(activation: str) -> None:
    for seed in range(40):
        problem, schedule, target = draw(seed)
        if problem.dtype not in ("float32", "bfloat16", "float16"):
            continue
        e = problem.epilogue
        gate = Epilogue(e.alpha, e.bias, e.bias_dtype, residual=True, derivative=activation)
        problem = replace(problem, out_dtype="float32", epilogue=gate)
        if legality.check(schedule, problem, target):
            continue
        arrays = inputs(problem, seed)
        main, *rest = lower_ampere(problem, schedule, target)
        for _, func in (main.stages[0], main.stages[-1]):
            got = interpret((func, *(launch.func for launch in rest)), arrays)
            assert_equal(problem, got, expected(problem, arrays))
        return
    raise AssertionError("no drawn problem took the derivative")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1500, 50))
def test_every_stage_of_many_drawn_problems_equals_numpy(first: int) -> None:
    for seed in range(first, first + 50):
        check(*draw(seed), seed)
