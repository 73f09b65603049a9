"""Measuring: what fails is a status, what is wrong is found, pairs stay pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpipe.epilogue import Epilogue
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.records import Measurement
from jaxpipe.runtime import reference
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import Plan
from jaxpipe.schedule import HostSchedule

PLAN = Plan(blocks=3, sample_s=0.0005, warmup_s=0.0, rotate_bytes=1, max_load=1e9)
PROBLEM = Matmul(48, 32, 64, dtype="bfloat16", epilogue=Epilogue(bias="column", activation="relu"))
EPILOGUE = Epilogue(0.5, "column", "float32", "gelu_erf", residual=True, save_preactivation=True)
PROBLEMS: list[Problem] = [
    Matmul(48, 32, 64, dtype="float32", epilogue=EPILOGUE),
    Matmul(48, 32, 64, (3, 2), lhs=Layout(True), rhs=Layout(True), epilogue=EPILOGUE),
    Matmul(33, 31, 7, dtype="float16", epilogue=Epilogue(bias="row", activation="silu")),
    Matmul(16, 16, 32, dtype="int8"),
    Conv2d(2, 9, 8, 4, 5, (3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2), epilogue=EPILOGUE),
]


def exact(problem: Problem):
    function = reference.xla_function(problem, exact=True)
    return lambda operands: function(**operands)


def run(problem: Problem, *functions) -> tuple[Measurement, ...]:
    return measure(problem, functions, plan=PLAN)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_exact_formulation_passes_the_float64_check(problem: Problem) -> None:
    (measured,) = run(problem, exact(problem))
    assert (measured.status, measured.reason) == ("ok", "")
    assert measured.max_error <= 1.0


def test_samples_come_in_pairs_with_the_baseline() -> None:
    (measured,) = run(PROBLEM, exact(PROBLEM))
    assert len(measured.samples_s) == len(measured.baseline_s) == 3
    assert all(0 < s < 1 for s in measured.samples_s + measured.baseline_s)
    assert measured.speedup == pytest.approx(
        np.median(np.array(measured.baseline_s) / np.array(measured.samples_s))
    )


def broken_row(operands):
    (y,) = exact(PROBLEM)(operands)
    return (y.at[7, 5].add(1.0),)


def unwritten(operands):
    (y,) = exact(PROBLEM)(operands)
    return (y.at[7, 5].set(jnp.nan),)


def unsupported(operands):
    raise NotImplementedError("no such kernel")


def crashing(operands):
    (y,) = exact(PROBLEM)(operands)
    return (jax.pure_callback(_raise, jax.ShapeDtypeStruct(y.shape, y.dtype), y),)


def _raise(y):
    raise RuntimeError("the launch failed")


class Drifting:
    """Gives other bits at every run, all within the tolerance."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, operands):
        (y,) = exact(PROBLEM)(operands)
        return (y + jax.pure_callback(self._drift, jax.ShapeDtypeStruct((), y.dtype)),)

    def _drift(self):
        self.runs += 1
        return jnp.bfloat16(self.runs * 1e-4)


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        (broken_row, "wrong_result", "times its limit"),
        (unwritten, "wrong_result", "nan times its limit"),
        (unsupported, "compile_failed", "NotImplementedError: no such kernel"),
        (crashing, "launch_failed", "the launch failed"),
        (Drifting(), "wrong_result", "inf times its limit"),
    ],
)
def test_a_bad_candidate_is_a_status_and_spares_the_others(function, status, reason) -> None:
    bad, good = run(PROBLEM, function, exact(PROBLEM))
    assert (bad.status, good.status) == (status, "ok")
    assert reason in bad.reason
    assert bad.samples_s == ()


def test_results_are_written_into_the_poisoned_buffers() -> None:
    from jaxpipe.runtime import timing

    operands = reference.random_operands(PROBLEM, 0)
    arena = timing._Arena([[operands]], jax.eval_shape(exact(PROBLEM), operands))
    candidate = timing._compile("c", exact(PROBLEM), arena)
    (before,) = arena._buffers[0][0]
    assert bool(jnp.all(jnp.isnan(before)))
    address = before.unsafe_buffer_pointer()
    (after,) = arena.run(candidate)[0]
    assert after.unsafe_buffer_pointer() == address
    assert before.is_deleted()


def test_a_slow_candidate_is_a_timeout() -> None:
    plan = Plan(blocks=1, sample_s=0.0, warmup_s=0.0, rotate_bytes=1, limit_s=1e-9, max_load=1e9)
    (measured,) = measure(PROBLEM, [exact(PROBLEM)], plan=plan)
    assert measured.status == "timeout"
    assert "limit 1e-09 s" in measured.reason


def test_a_schedule_is_compiled_once_for_all_rounds(monkeypatch) -> None:
    from jaxpipe.runtime import timing

    compiled, compile_program = [], timing._compile

    def counted(name, function, arena):
        compiled.append(name)
        return compile_program(name, function, arena)

    monkeypatch.setattr(timing, "_compile", counted)
    problem, schedule = Matmul(16, 48, 80, dtype="float32"), HostSchedule()
    rounds = [measure(problem, [schedule, exact(problem)], plan=PLAN) for _ in range(3)]
    assert all(m.status == "ok" for found in rounds for m in found)
    assert sum(name.startswith("host ") for name in compiled) == 1
    assert sum(name.startswith("candidate") for name in compiled) == 3
    twice = measure(problem, [schedule, schedule], plan=PLAN)
    assert [m.status for m in twice] == ["ok", "ok"]
