"""What PriorSampler promises beyond the contract."""

import time

import numpy as np
import optuna
import pytest

from jaxpipe.errors import TuningError
from jaxpipe.tune.candidates import Candidates
from jaxpipe.tune.replay import Replay, simulate
from jaxpipe.tune.sampler import PriorSampler
from tests.tune import spaces

optuna.logging.set_verbosity(optuna.logging.ERROR)


def ask_row(study, space):
    return space.row(study.ask(space.distributions()).params)


def first_rows(space, count, **kwargs):
    study = optuna.create_study(sampler=PriorSampler(space, **kwargs))
    return [ask_row(study, space) for _ in range(count)]


def big_space(size, knobs=8, seed=0):
    rng = np.random.default_rng(seed)
    values = 2 ** rng.integers(0, 8, (size, knobs))
    values = np.unique(values, axis=0)
    columns = {f"k{i}": values[:, i] for i in range(knobs)}
    truth = np.log(values / 16.0) ** 2 @ rng.random(knobs)
    return Candidates(columns, truth + rng.normal(0, 0.5, len(values))), truth


def test_the_first_pick_is_the_models_best():
    space = spaces.candidates()
    assert first_rows(space, 1)[0] in np.flatnonzero(space.log_prior == space.log_prior.min())


def test_ties_of_the_model_are_broken_by_the_seed_not_by_position():
    space = spaces.candidates().with_prior(np.zeros(56))
    assert len({first_rows(space, 1, seed=s)[0] for s in range(8)}) > 3


def test_start_up_spreads_over_the_models_top_and_ends_with_a_uniform_row():
    space, _ = big_space(3000)
    top = set(np.argsort(space.log_prior)[: round(0.02 * len(space))].tolist())
    starts = [first_rows(space, 4, seed=s) for s in range(6)]
    assert all(set(rows[:3]) <= top for rows in starts)
    assert len({rows[3] for rows in starts}) > 3
    assert any(rows[3] not in top for rows in starts)


def test_without_prior_the_prediction_has_no_influence():
    space = spaces.candidates()
    other = space.with_prior(-space.log_prior)
    assert first_rows(space, 9, use_prior=False) == first_rows(other, 9, use_prior=False)


def test_a_misleading_prior_does_not_hold_the_search():
    """The prior ranks the true optimum last: it must be found before the list ends."""
    toy = spaces.replay()
    hostile = Replay(
        "hostile", toy.candidates.with_prior(-np.log(toy.seconds)), toy.seconds, toy.spread
    )
    found = [
        simulate(hostile, PriorSampler(hostile.candidates, seed=s), 30, s)[-1] for s in range(3)
    ]
    assert min(found) > 0.95


def test_a_good_prior_is_worth_ten_trials():
    space, truth = big_space(2000)
    replay = Replay("big", space, np.exp(truth) * 1e-3, np.full(len(space), 0.01))
    warm = np.mean([simulate(replay, PriorSampler(space, seed=s), 8, s)[-1] for s in range(3)])
    cold = np.mean(
        [
            simulate(replay, PriorSampler(space, seed=s, use_prior=False), 18, s)[-1]
            for s in range(4)
        ]
    )
    assert warm >= cold


def test_a_failing_region_is_left_alone():
    """Half the list fails to compile: the share of failures must fall well below a half."""
    space, truth = big_space(2000)
    codes = space.codes[:, 0]
    seconds = np.where(codes >= 4, np.nan, np.exp(truth) * 1e-3)
    study = optuna.create_study(
        sampler=PriorSampler(space.with_prior(space.log_prior - (codes >= 4)))
    )
    failed = []
    for _ in range(30):
        trial = study.ask(space.distributions())
        value = seconds[space.row(trial.params)]
        failed.append(bool(np.isnan(value)))
        study.tell(
            trial,
            None if np.isnan(value) else value,
            state=optuna.trial.TrialState.FAIL if np.isnan(value) else None,
        )
    assert np.mean(failed[-15:]) <= 0.2


def test_pending_proposals_are_spread_and_not_neighbours_of_one_row():
    space, truth = big_space(2000)
    study = optuna.create_study(sampler=PriorSampler(space))
    for _ in range(12):
        trial = study.ask(space.distributions())
        study.tell(trial, float(np.exp(truth[space.row(trial.params)])))
    batch = [ask_row(study, space) for _ in range(8)]
    assert len(set(batch)) == 8


def test_it_stops_when_nothing_promising_is_left():
    toy = spaces.replay(spread=0.0)
    sampler = PriorSampler(toy.candidates, promise=0.005)
    study = optuna.create_study(sampler=sampler)
    while not sampler.is_done(study):
        trial = study.ask(toy.candidates.distributions())
        study.tell(trial, float(toy.seconds[toy.candidates.row(trial.params)]))
    assert len(study.trials) < len(toy.candidates)
    assert study.best_value == toy.best_s


def test_an_exhausted_list_is_done():
    toy = spaces.replay()
    sampler = PriorSampler(toy.candidates)
    study = optuna.create_study(sampler=sampler)
    for row in range(len(toy.candidates)):
        assert not sampler.is_done(study)
        study.enqueue_trial(toy.candidates.params(row))
        study.tell(study.ask(toy.candidates.distributions()), 1.0)
    assert sampler.is_done(study)


@pytest.mark.parametrize("bad", [{"n_startup": 0}, {"hand_off": -1}, {"promise": -0.1}])
def test_bad_arguments_are_refused_with_values(bad):
    with pytest.raises(TuningError, match="use at least 1"):
        PriorSampler(spaces.candidates(), **bad)


@pytest.mark.parametrize(("size", "limit_s"), [(2_000, 0.05), (250_000, 0.5)])
def test_a_proposal_is_cheap(size, limit_s):
    """With fifty observations; the median of this thread's time, as other processes share cores."""
    space, truth = big_space(size)
    study = optuna.create_study(sampler=PriorSampler(space))
    for row in np.argsort(space.log_prior)[:: size // 60][:50].tolist():
        study.enqueue_trial(space.params(row))
        study.tell(study.ask(space.distributions()), float(np.exp(truth[row])))
    took = []
    for _ in range(8):
        start = time.thread_time()
        trial = study.ask(space.distributions())
        took.append(time.thread_time() - start)
        study.tell(trial, float(np.exp(truth[space.row(trial.params)])))
    assert np.median(took[1:]) < limit_s
