"""A recorded space as a device."""

import numpy as np
import pytest

from jaxpipe.errors import TuningError
from jaxpipe.tune.methods import METHODS
from jaxpipe.tune.replay import Replay, simulate
from tests.tune import spaces


def test_samples_scatter_about_the_true_time_by_the_recorded_spread():
    toy = spaces.replay(spread=0.05)
    samples = toy.measure(3, np.random.default_rng(0), 4000)
    assert np.log(samples).mean() == pytest.approx(np.log(toy.seconds[3]), abs=0.005)
    assert np.log(samples).std() == pytest.approx(0.05, rel=0.05)


def test_a_failed_row_has_no_samples_and_no_worth():
    toy = spaces.replay()
    broken = Replay(
        "b", toy.candidates, np.where(np.arange(56) == 3, np.nan, toy.seconds), toy.spread
    )
    assert broken.measure(3, np.random.default_rng(0)) == ()
    assert broken.efficiency(3) == 0.0


def test_a_study_of_the_whole_list_ends_at_the_optimum():
    toy = spaces.replay(spread=0.0)
    course = simulate(toy, METHODS["grid"].make(toy.candidates, 0), 60, 0)
    assert course[-1] == 1.0
    assert np.all(np.diff(course) >= 0)


def test_a_course_repeats_itself():
    toy = spaces.replay()
    first, second = (simulate(toy, METHODS["prior"].make(toy.candidates, 2), 20, 2) for _ in "ab")
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("seconds", [np.ones(3), np.full(56, np.nan)])
def test_a_bad_recording_is_refused(seconds):
    toy = spaces.replay()
    with pytest.raises(TuningError, match=r"56 candidates|no candidate has a time"):
        Replay("bad", toy.candidates, seconds, toy.spread)
