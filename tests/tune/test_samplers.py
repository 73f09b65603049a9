"""The contract of every sampler: one suite, one parameter a method."""

import functools
import math
import subprocess
import sys
import warnings

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from jaxpipe.errors import TuningError
from jaxpipe.tune.methods import METHODS
from tests.tune import spaces

warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
optuna.logging.set_verbosity(optuna.logging.ERROR)
RUNNABLE = [n for n, m in METHODS.items() if m.needs != "torch"]
LEARNERS = ["prior", "gp", "xgb", "xgb_assisted", "optuna_tpe"]


@functools.cache
def space():
    return spaces.candidates()


def seconds(row):
    return float(spaces.times(spaces.grid())[0][row])


def make(method, seed=0):
    return METHODS[method].make(space(), seed)


def study_of(method, seed=0, **kwargs):
    return optuna.create_study(sampler=make(method, seed), **kwargs)


def step(study, tell=seconds):
    """One ask and tell; gives the row that was asked."""
    trial = study.ask(space().distributions())
    row = space().row(trial.params)
    value = None if row is None else tell(row)
    study.tell(trial, value, state=None if value is not None else TrialState.FAIL)
    return row


def course(method, count, seed=0, tell=seconds):
    study = study_of(method, seed)
    return [step(study, tell) for _ in range(count)]


def test_every_method_that_needs_no_missing_library_is_under_contract():
    assert set(METHODS) - set(RUNNABLE) == {"optuna_gp"}


@pytest.mark.parametrize("method", RUNNABLE)
class TestContract:
    def test_every_proposal_is_legal_and_none_comes_twice(self, method):
        rows = course(method, 30)
        assert len(set(rows)) == 30
        assert None not in rows

    def test_a_whole_list_is_tried_and_then_said_to_be_exhausted(self, method):
        short = spaces.candidates(count=12)
        study = optuna.create_study(sampler=METHODS[method].make(short, 0))
        rows = [short.row(study.ask(short.distributions()).params) for _ in range(12)]
        assert sorted(rows) == list(range(12))
        with pytest.raises(TuningError, match="all 12 candidates"):
            study.ask(short.distributions())
        assert study.trials[-1].state == TrialState.FAIL

    def test_optimize_ends_by_itself_when_the_list_is_exhausted(self, method):
        short = spaces.candidates(count=12)
        study = optuna.create_study(sampler=METHODS[method].make(short, 0))

        def objective(trial):
            names = short.distributions().items()
            params = {n: trial.suggest_categorical(n, d.choices) for n, d in names}
            return seconds(short.row(params))

        study.optimize(objective, n_trials=100)
        assert len(study.trials) == 12

    def test_the_same_seed_gives_the_same_course(self, method):
        assert course(method, 14, seed=3) == course(method, 14, seed=3)

    def test_failures_are_not_proposed_again_and_do_not_stop_it(self, method):
        rows = course(method, 30, tell=lambda row: None if row % 3 == 0 else seconds(row))
        assert len(set(rows)) == 30

    def test_it_goes_on_when_everything_failed(self, method):
        rows = course(method, 20, tell=lambda row: None)
        assert len(set(rows)) == 20

    def test_an_infinite_value_counts_as_a_failure(self, method):
        rows = course(method, 20, tell=lambda row: math.inf if row % 2 else seconds(row))
        assert len(set(rows)) == 20

    def test_running_trials_are_not_proposed_again(self, method):
        study = study_of(method)
        rows = [space().row(study.ask(space().distributions()).params) for _ in range(12)]
        assert len(set(rows)) == 12

    def test_an_enqueued_trial_comes_next_as_it_is(self, method):
        study = study_of(method)
        step(study)
        study.enqueue_trial(space().params(41))
        assert step(study) == 41

    def test_waiting_trials_are_not_proposed_to_others(self, method):
        study = study_of(method)
        for row in range(10, 50):
            study.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.WAITING, system_attrs={"fixed_params": space().params(row)}
                )
            )
        tried = make(method).history(study).tried
        assert set(range(10, 50)) == set(tried.tolist())

    def test_a_partly_enqueued_trial_is_completed_to_a_legal_row(self, method):
        study = study_of(method)
        step(study)
        study.enqueue_trial({"tile": 128, "order": "row"})
        params = space().params(step(study))
        assert (params["tile"], params["order"]) == (128, "row")

    def test_a_trial_from_outside_the_list_does_not_disturb_it(self, method):
        study = study_of(method)
        study.enqueue_trial({"tile": 128, "stages": 4, "order": "row", "swizzle": True})
        assert step(study) is None
        assert step(study) is not None

    def test_another_process_resumes_where_this_one_stopped(self, method, tmp_path):
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "s.log"))
        storage = optuna.storages.JournalStorage(backend)
        study = study_of(method, seed=5, storage=storage, study_name="s")
        first = [step(study) for _ in range(8)]
        again = optuna.load_study(study_name="s", storage=storage, sampler=make(method, 5))
        assert first + [step(again) for _ in range(6)] == course(method, 14, seed=5)

    def test_a_foreign_knob_is_refused_by_name(self, method):
        study = study_of(method)
        trial = study.ask()
        with pytest.raises(TuningError, match="'colour'"):
            trial.suggest_categorical("colour", ["red", "green"])

    def test_several_objectives_are_refused(self, method):
        study = optuna.create_study(directions=["minimize"] * 2, sampler=make(method))
        with pytest.raises(TuningError, match="2 objectives"):
            study.ask(space().distributions())


@pytest.mark.parametrize("method", LEARNERS)
def test_learners_find_a_good_row_among_56_in_25_trials(method):
    best = min(seconds(row) for row in range(len(space())))
    found = [min(map(seconds, course(method, 25, seed=s))) for s in range(2)]
    assert best / np.median(found) > 0.9


def test_a_fresh_process_gives_the_same_course():
    code = (
        "import tests.tune.test_samplers as t;"
        "print([t.course(m, 8, seed=3) for m in ('prior', 'xgb_assisted', 'optuna_tpe')])"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert outs == {f"{[course(m, 8, seed=3) for m in ('prior', 'xgb_assisted', 'optuna_tpe')]}\n"}


def test_values_that_are_rates_can_be_maximised():
    study = study_of("prior", direction="maximize")
    for _ in range(20):
        step(study, lambda row: 1 / seconds(row))
    assert study.best_value == max(1 / seconds(row) for row in range(len(space())))


def test_a_value_that_has_no_logarithm_is_refused_with_the_remedy():
    study = study_of("prior")
    step(study, lambda row: -1.0)
    with pytest.raises(TuningError, match="scale='linear'"):
        step(study)


def test_the_roller_and_bottleneck_methods_follow_their_own_orders():
    assert space().params(course("roller", 1)[0])["tile"] == 128
    assert space().params(course("bottleneck", 1)[0])["tile"] == 16


def test_a_method_serves_only_lists_with_its_prediction():
    bare = spaces.candidates(with_prior=False)
    assert not METHODS["prior"].serves(bare)
    assert METHODS["gp"].serves(bare)
