"""A program's products: found by tracing, trials by their share of time."""

from collections import Counter

import jax.numpy as jnp

import jaxpipe
from jaxpipe.problem import Matmul
from jaxpipe.target import HostDevice
from jaxpipe.tune.programs import LEAST_TRIALS, problems_of, shares, trials_of

HOST = HostDevice("test_cpu", "avx512", 2, 3e9)


def program(x, w):
    with jaxpipe.options(implementation="host"):
        return jaxpipe.dot(jaxpipe.dot(x, w), w).sum()


def big_and_small():
    return Counter(
        {Matmul(1024, 1024, 1024, dtype="float32"): 3, Matmul(64, 64, 64, dtype="float32"): 1}
    )


def test_products_of_a_program_are_found_without_running_it():
    x, w = jnp.ones((64, 32)), jnp.ones((32, 32))
    assert problems_of(program, x, w) == Counter({Matmul(64, 32, 32, dtype="float32"): 2})


def test_shares_sum_to_one_and_count_how_often():
    found = shares(big_and_small(), HOST)
    assert abs(sum(found.values()) - 1) < 1e-9
    assert next(iter(found.values())) > 0.9


def test_a_problem_that_computes_nothing_has_no_share():
    assert Matmul(0, 8, 8, dtype="float32") not in shares(
        Counter({Matmul(0, 8, 8, dtype="float32"): 1, **big_and_small()}), HOST
    )


def test_trials_follow_shares_and_stay_within_the_budget():
    trials = trials_of(shares(big_and_small(), HOST), 100)
    assert sum(trials.values()) <= 100
    assert next(iter(trials.values())) > 80
    assert min(trials.values()) >= LEAST_TRIALS


def test_a_short_budget_goes_to_the_largest_share():
    assert list(trials_of(shares(big_and_small(), HOST), 9)) == [
        Matmul(1024, 1024, 1024, dtype="float32")
    ]
