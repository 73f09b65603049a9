"""The Gaussian process over a list, against the textbook and against what it is for."""

import numpy as np
import pytest

from jaxpipe.tune import surrogate, trees
from jaxpipe.tune.candidates import Candidates
from tests.tune import spaces


def line(count=64):
    return Candidates({"x": np.arange(1, count + 1)}, extra=np.linspace(-2, 2, count)[:, None])


def rows(*values):
    return np.array(values, dtype=np.int64)


def test_expected_improvement_is_the_mean_gain_of_sampled_outcomes():
    mean, deviation = np.array([0.2, -0.1, 1.0]), np.array([0.3, 0.05, 0.5])
    draws = np.random.default_rng(0).normal(mean, deviation, (400_000, 3))
    sampled = np.maximum(0.0 - draws, 0).mean(axis=0)
    exact = surrogate._improvement(mean, deviation, 0.0)
    np.testing.assert_allclose(exact, sampled, atol=2e-3)


def test_rows_far_below_hope_still_have_an_order():
    gain = surrogate._improvement(np.array([100.0, 90.0]), np.array([1.0, 1.0]), 0.0)
    assert 0 < gain[0] < gain[1]


def test_a_measured_row_promises_less_than_its_unmeasured_surroundings():
    space = line()
    values = (np.linspace(-2, 2, 64) - 0.5) ** 2
    seen = rows(0, 10, 20, 30, 50, 63)
    gain = surrogate.expected_improvement(space, seen, values[seen], np.arange(64))
    assert abs(int(np.argmax(gain)) - int(np.argmin(values))) <= 4
    assert int(np.argmax(gain)) not in seen


def test_the_prior_mean_orders_what_is_far_from_every_observation():
    space = line()
    truth = np.linspace(-2, 2, 64) ** 2
    seen = rows(0, 1, 2, 3)
    gain = surrogate.expected_improvement(space, seen, truth[seen], np.arange(4, 64), truth)
    assert abs(int(np.argmax(gain)) + 4 - 32) <= 4


def test_a_constant_added_to_the_prior_changes_nothing():
    space, values = line(), np.sin(np.arange(64.0))
    seen, asked = rows(3, 9, 27, 44), np.arange(64)
    prior = np.cos(np.arange(64.0))
    a = surrogate.expected_improvement(space, seen, values[seen], asked, prior)
    b = surrogate.expected_improvement(space, seen, values[seen], asked, prior + 17.0)
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


def test_equal_observations_do_not_break_it():
    gain = surrogate.expected_improvement(line(), rows(1, 2, 3), np.ones(3), np.arange(64))
    assert np.all(np.isfinite(gain))


def test_many_observations_are_thinned_to_the_best_and_the_latest():
    values = np.arange(500.0)
    kept, kept_values = surrogate._kept(np.arange(500), values)
    assert len(kept) == surrogate.MOST_OBSERVATIONS
    assert {0, 79, 499} <= set(kept.tolist())
    assert kept_values.tolist() == values[kept].tolist()


@pytest.mark.parametrize("distance", [surrogate.euclidean, surrogate.hamming])
def test_distances_are_symmetric_and_zero_on_the_diagonal(distance):
    space, all_rows = spaces.candidates(), np.arange(56)
    table = distance(space, all_rows, all_rows)
    np.testing.assert_allclose(table, table.T, atol=1e-6)
    np.testing.assert_allclose(np.diag(table), 0, atol=1e-6)


def test_hamming_counts_differing_knobs():
    space = spaces.candidates()
    a, b = rows(space.row(dict(space.params(0)))), rows(1)
    assert surrogate.hamming(space, a, b) == 0.25


def test_trees_reproduce_a_cliff_of_one_switch():
    space = spaces.candidates()
    values = np.where(
        np.array([p["order"] == "row" for p in map(space.params, range(56))]), 1.0, 0.0
    )
    seen = np.arange(0, 56, 2)
    guesses = trees.predict(
        space.codes, seen, values[seen], np.arange(56), np.random.default_rng(0)
    )
    assert np.corrcoef(guesses.mean(axis=0), values)[0, 1] > 0.9


def test_trees_predict_within_the_observed_range():
    space, values = spaces.candidates(), np.random.default_rng(1).normal(size=20)
    guesses = trees.predict(
        space.codes, np.arange(20), values, np.arange(56), np.random.default_rng(0)
    )
    assert values.min() <= guesses.min() <= guesses.max() <= values.max()
