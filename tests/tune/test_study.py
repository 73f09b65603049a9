"""A study from its first trial to its winner: kept, resumed, isolated, never fooled."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import optuna
import pytest

from jaxpipe import tuned
from jaxpipe.errors import TuningError
from jaxpipe.problem import Matmul
from jaxpipe.records import Measurement
from jaxpipe.target import host_device
from jaxpipe.tune.crew import LocalCrew, ReplayCrew
from jaxpipe.tune.finals import winner_of
from jaxpipe.tune.ledger import Ledger
from jaxpipe.tune.methods import METHODS
from jaxpipe.tune.problem_space import problem_space
from jaxpipe.tune.replay import Replay
from jaxpipe.tune.study import Budget, Study

optuna.logging.set_verbosity(optuna.logging.ERROR)
PROBLEM = Matmul(128, 256, 256, dtype="float32")
SPACE = problem_space(PROBLEM, host_device())


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "shipped")


def recording(fails=()):
    seconds = SPACE.predicted_s * np.exp(0.3 * np.sin(np.arange(len(SPACE))))
    seconds[list(fails)] = np.nan
    return Replay("toy", SPACE.candidates, seconds, np.full(len(SPACE), 0.01))


def study_of(tmp_path, crew=None, sampler="prior", **kwargs):
    return Study(
        SPACE,
        "host",
        crew or ReplayCrew(SPACE, recording()),
        METHODS[sampler].make(SPACE.candidates, 0),
        Ledger(tmp_path / "ledger.jsonl"),
        tmp_path / "tuned.json",
        **kwargs,
    )


def child_crew(**environment):
    return LocalCrew(measuring="tests.tune.children", environment=environment)


def test_the_winner_is_near_the_optimum_and_filed(tmp_path):
    tuning = study_of(tmp_path).run(Budget(25))
    filed = tuned.Table.load(tmp_path / "tuned.json").exact(PROBLEM, "host", SPACE.target.name)
    assert filed == tuning.winner
    assert recording().efficiency(SPACE.row(filed.schedule)) > 0.9


def test_every_trial_and_finalist_is_in_the_ledger_losers_included(tmp_path):
    study_of(tmp_path, ReplayCrew(SPACE, recording(fails=[0, 1, 2])), "grid").run(Budget(12))
    records = Ledger(tmp_path / "ledger.jsonl").read()
    assert len(records) == 12 + 5 + 1
    assert records[-1].schedule == SPACE.untuned, "what would serve untuned is a finalist too"
    assert [r.measurement.status for r in records[:3]] == ["launch_failed"] * 3
    assert all(r.predicted_s > 0 for r in records)


def test_trials_carry_what_the_dashboard_shows(tmp_path):
    study = study_of(tmp_path)
    study.run(Budget(5))
    shown = study.study.trials[0].user_attrs
    assert {"status", "predicted_s", "samples_s", "speedup", "schedule", "max_error"} <= set(shown)


@pytest.mark.parametrize("storage", ["", "journal:{}/s.log", "sqlite:///{}/s.db"])
def test_a_second_run_goes_on_where_the_first_stopped(tmp_path, storage):
    storage = storage.format(tmp_path)
    study_of(tmp_path, storage=storage).run(Budget(6))
    again = study_of(tmp_path, storage=storage)
    again.run(Budget(9))
    rows = [SPACE.candidates.row(t.params) for t in again.study.trials]
    assert len(rows) == len(set(rows)) == 9


def test_a_lost_storage_is_made_anew_from_the_ledger(tmp_path):
    study_of(tmp_path, storage=f"sqlite:///{tmp_path}/a.db").run(Budget(6))
    again = study_of(tmp_path, storage=f"sqlite:///{tmp_path}/b.db")
    again.run(Budget(6))
    assert len(again.study.trials) == 6
    assert all(t.user_attrs["from_ledger"] for t in again.study.trials)


def test_measurements_of_other_versions_do_not_count_as_done(tmp_path):
    study_of(tmp_path).run(Budget(6))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    old = [dataclasses.replace(r, versions=(("jaxpipe", "0.0.0"),)) for r in ledger.read()]
    ledger.path.unlink()
    ledger.append(old)
    again = study_of(tmp_path)
    again.run(Budget(6))
    assert not any(t.user_attrs.get("from_ledger") for t in again.study.trials)


def test_abandoned_trials_are_measured_again(tmp_path):
    storage = f"sqlite:///{tmp_path}/s.db"
    first = study_of(tmp_path, storage=storage)
    optuna_study = optuna.create_study(
        study_name=first.name, storage=storage, sampler=first.sampler
    )
    abandoned = optuna_study.ask(SPACE.candidates.distributions()).params
    first.run(Budget(4))
    done = [t.params for t in first.study.trials if "status" in t.user_attrs]
    assert abandoned in done
    assert len(done) == 4


def test_winners_of_nearby_problems_are_tried_first(tmp_path):
    near = Matmul(128, 256, 512, dtype="float32")
    row = 17
    record = study_of(tmp_path / "a").run(Budget(4)).winner
    seed = dataclasses.replace(record, problem=near.key, schedule=SPACE.schedule(row))
    with tuned.using(tuned.Table.of([seed])):
        study = study_of(tmp_path / "b")
        study.run(Budget(3))
    assert SPACE.candidates.row(study.study.trials[0].params) == row


def test_a_study_of_a_short_list_ends_when_all_was_tried(tmp_path):
    tuning = study_of(tmp_path, sampler="random").run(Budget(10_000))
    assert tuning.ended in ("every candidate was tried", "nothing promising is left")
    assert tuning.trials == len(SPACE)


def test_when_everything_fails_one_error_lists_the_reasons(tmp_path):
    crew = ReplayCrew(SPACE, recording())
    crew._replay = dataclasses.replace(crew._replay)
    object.__setattr__(crew._replay, "seconds", np.full(len(SPACE), np.nan))
    with pytest.raises(TuningError, match=r"4 x launch_failed: failed when it was recorded"):
        study_of(tmp_path, crew).run(Budget(4))


# ---------------------------------------------------------------------------------- children


@pytest.mark.parametrize(
    ("act", "status", "reason"),
    [("crash", "crashed", "SIGSEGV.*about to crash"), ("wrong", "wrong_result", "3 times")],
)
def test_a_bad_candidate_is_a_failed_trial_and_never_wins(tmp_path, act, status, reason):
    crew = child_crew(CHILD_BAD_STRIP="64", CHILD_ACT=act)
    study = study_of(tmp_path, crew, "random")
    tuning = study.run(Budget(8))
    crew.close()
    assert status in tuning.failures
    assert tuning.winner.schedule.strip != 64
    bad = [t.user_attrs for t in study.study.trials if t.user_attrs["status"] == status]
    assert re.search(reason, bad[0]["reason"], re.DOTALL)


def test_a_hanging_candidate_is_killed_and_the_study_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxpipe.tune.isolated.START_S", 5.0)
    crew = child_crew(CHILD_BAD_STRIP="32", CHILD_ACT="hang")
    study = study_of(tmp_path, crew, "random", timeout_s=1.0)
    tuning = study.run(Budget(6))
    crew.close()
    assert tuning.trials == 6
    assert tuning.winner.schedule.strip != 32


def test_the_fastest_correct_schedule_wins_by_its_ratio_to_xla(tmp_path):
    crew = child_crew()
    tuning = study_of(tmp_path, crew, "grid").run(Budget(30))
    crew.close()
    assert tuning.speedup == pytest.approx(2.0, rel=0.15)
    assert not tuning.winner.schedule.copy_lhs


RUN = """
import sys, pathlib
from tests.tune.test_study import *
path = pathlib.Path(sys.argv[1])
study_of(path, child_crew(CHILD_SLEEP_S="0.05"), storage=sys.argv[2]).run(Budget(int(sys.argv[3])))
"""


def start(tmp_path, storage, trials):
    env = {**os.environ, "JAXPIPE_CACHE_DIR": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path), storage, str(trials)], env=env
    )


def wait_for_lines(path, count, limit_s=60):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} has not {count} lines after {limit_s} s")


def test_ctrl_c_keeps_everything_and_names_a_winner(tmp_path):
    process = start(tmp_path, "", 1000)
    wait_for_lines(tmp_path / "ledger.jsonl", 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    kept = Ledger(tmp_path / "ledger.jsonl").read()
    assert len(kept) >= 4
    assert len(tuned.Table.load(tmp_path / "tuned.json")) == 1


def test_a_killed_tuner_resumes_without_losing_or_repeating_a_measurement(tmp_path):
    storage = f"sqlite:///{tmp_path}/s.db"
    process = start(tmp_path, storage, 1000)
    wait_for_lines(tmp_path / "ledger.jsonl", 4)
    process.kill()
    process.wait()
    before = [json.dumps(r.schedule.to_json()) for r in Ledger(tmp_path / "ledger.jsonl").read()]
    study = study_of(tmp_path, storage=storage)
    study.run(Budget(len(before) + 3))
    done = [t for t in study.study.trials if "status" in t.user_attrs]
    assert len(done) == len(before) + 3
    assert len({json.dumps(t.params, sort_keys=True) for t in done}) == len(done)


def test_a_tuner_that_died_amid_telling_a_trial_completes_it_from_the_ledger(tmp_path, monkeypatch):
    told = optuna.Study.tell
    storage = f"sqlite:///{tmp_path}/s.db"

    def die_at_the_third(study, trial, *args, **kwargs):
        if len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])) == 2:
            raise SystemExit("killed between the attributes and the state")
        return told(study, trial, *args, **kwargs)

    crew = child_crew()
    monkeypatch.setattr(optuna.Study, "tell", die_at_the_third)
    with pytest.raises(SystemExit):
        study_of(tmp_path, crew, storage=storage).run(Budget(9))
    crew.close()
    monkeypatch.setattr(optuna.Study, "tell", told)
    study = study_of(tmp_path, storage=storage)
    study.run(Budget(6))
    done = [t for t in study.study.trials if "status" in t.user_attrs]
    assert [t.state for t in done] == [optuna.trial.TrialState.COMPLETE] * 6
    assert "from_ledger" not in done[2].user_attrs
    assert len({json.dumps(t.params, sort_keys=True) for t in done}) == 6


# ---------------------------------------------------------------------------------- winners


def finalists(tmp_path, speedups):
    record = study_of(tmp_path).run(Budget(3)).winner
    return [
        dataclasses.replace(
            record,
            schedule=SPACE.schedule(i),
            measurement=Measurement("ok", (1e-3 / s,) * 3, (1e-3,) * 3),
        )
        for i, s in enumerate(speedups)
    ]


def test_a_clear_lead_wins(tmp_path):
    assert winner_of(finalists(tmp_path, [1.0, 1.2, 1.1])).schedule == SPACE.schedule(1)


def test_a_tie_goes_to_the_smaller_footprint_whatever_the_order(tmp_path):
    records = finalists(tmp_path, [1.2, 1.2005, 1.1995])
    assert winner_of(records) == winner_of(records[::-1])


def test_nobody_wins_when_nothing_worked(tmp_path):
    failed = [
        dataclasses.replace(r, measurement=Measurement("crashed")) for r in finalists(tmp_path, [1])
    ]
    assert winner_of(failed) is None
