"""The latency model against a simulation of the machine it describes, and its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jaxpipe.model.pipeline import is_hidden, makespan, service_interval, steady_interval
from tests.model.simulate import simulate

CASES = 20_000
times = st.floats(1e-3, 1e3)
counts = st.integers(1, 8)


@pytest.fixture(scope="module")
def drawn() -> dict[str, NDArray[np.float64]]:
    """20,000 machines: loads from far below to far above what the uses can hide."""
    rng = np.random.default_rng(20231)
    use = rng.choice([0.3, 1.0, 2.0, 5.0, 10.0], CASES)
    stages, workers = rng.integers(1, 7, CASES), rng.integers(1, 9, CASES)
    load = rng.uniform(0.01, 2.5, CASES) * stages * workers * use
    steps = rng.integers(1, 49, CASES)
    return {"load": load, "use": use, "stages": stages, "workers": workers, "steps": steps}


def test_the_makespan_is_what_a_discrete_event_simulation_takes(drawn: dict[str, object]) -> None:
    assert np.abs(makespan(**drawn) / simulate(**drawn) - 1.0).max() < 1e-9


@pytest.mark.parametrize("wrong", ["stages", "workers", "steps"])
def test_the_simulation_tells_a_wrong_machine(drawn: dict[str, object], wrong: str) -> None:
    other = makespan(**{**drawn, wrong: drawn[wrong] + 1})
    assert np.abs(other / simulate(**drawn) - 1.0).max() > 0.1


def test_the_simulation_meets_both_cases_of_the_formula(drawn: dict[str, object]) -> None:
    machine = {name: drawn[name] for name in ("load", "use", "stages", "workers")}
    assert 0.2 < is_hidden(**machine).mean() < 0.8


@given(load=times, use=times, steps=counts)
def test_one_stage_and_one_worker_load_and_use_in_turn(load: float, use: float, steps: int) -> None:
    assert makespan(load, use, 1, 1, steps) == pytest.approx(steps * (load + use))


@given(use=times, stages=counts, workers=counts, steps=counts)
def test_free_loads_leave_only_the_uses(use: float, stages: int, workers: int, steps: int) -> None:
    assert makespan(0.0, use, stages, workers, steps) == pytest.approx(steps * workers * use)


@given(load=times, use=times, stages=counts, workers=counts, steps=counts)
def test_the_unit_never_works_faster_than_it_can(
    load: float, use: float, stages: int, workers: int, steps: int
) -> None:
    assert makespan(load, use, stages, workers, steps) >= load + steps * workers * use * (1 - 1e-12)


@given(load=times, use=times, stages=counts, workers=counts, steps=counts)
def test_a_further_stage_is_never_slower(
    load: float, use: float, stages: int, workers: int, steps: int
) -> None:
    more = makespan(load, use, stages + 1, workers, steps)
    assert more <= makespan(load, use, stages, workers, steps) * (1 + 1e-12)


@given(load=times, use=times, stages=counts, workers=counts)
def test_stages_and_workers_hide_latency_as_a_product(
    load: float, use: float, stages: int, workers: int
) -> None:
    assert is_hidden(load, use, stages, workers) == is_hidden(load, use, workers, stages)


@given(load=times, use=times, stages=counts, workers=counts)
def test_long_loops_take_the_steady_interval(
    load: float, use: float, stages: int, workers: int
) -> None:
    longer = makespan(load, use, stages, workers, 20 * stages + 1)
    step = longer - makespan(load, use, stages, workers, 10 * stages + 1)
    assert step / (10 * stages) == pytest.approx(steady_interval(load, use, stages, workers))


def test_a_use_that_holds_the_unit_briefly_lets_others_in() -> None:
    assert service_interval(10.0, 4, busy=2.0) == 10.0
    assert service_interval(10.0, 8, busy=2.0) == 16.0


def test_no_steps_take_no_time() -> None:
    assert makespan(5.0, 1.0, 2, 2, 0) == 0.0
