"""Tunes one problem: asks a sampler, has candidates measured, keeps everything, names a winner.

In: a problem space, a crew that measures, a sampler, a budget. Out: a Tuning, its winner filed in
the user's table. The ledger is written before the study is told, so that no finished measurement
is lost to a crash; a study that was cut off is completed from the ledger and goes on. It must not
know how a crew measures.
"""

from __future__ import annotations

import collections
import math
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from jaxpipe import tuned
from jaxpipe.errors import TuningError
from jaxpipe.records import Record
from jaxpipe.schedule import Schedule
from jaxpipe.tune import told
from jaxpipe.tune.finals import FINALISTS, winner_of
from jaxpipe.tune.job import Crew, Executor, Job, Outcome
from jaxpipe.tune.ledger import Ledger
from jaxpipe.tune.listed import ListSampler
from jaxpipe.tune.problem_space import ProblemSpace
from jaxpipe.tune.progress import Progress, duration
from jaxpipe.tune.storage import open_storage, patiently

SEEDS = 2
"""Winners of nearby problems (or of older versions) that are tried first."""
MOST_REQUEUES = 2
NUMBER_OF_FINALS = -1


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: trials in the study (those before this run count), seconds of this run
    (0: no limit)."""

    trials: int = 50
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a study ended. winner: the filed record. speedup: median of XLA's time over ours, side
    by side; 0.0 without a baseline. ended: why it stopped."""

    problem: str
    winner: Record
    trials: int
    failures: dict[str, int]
    ended: str

    @property
    def speedup(self) -> float:
        """The winner's speed over XLA's."""
        return self.winner.measurement.speedup

    def __str__(self) -> str:
        m = self.winner.measurement
        ratio = f" ({m.speedup:.3f}x XLA)" if m.speedup else ""
        failed = sum(self.failures.values())
        return (
            f"{self.problem}: {duration(m.median_s)}{ratio} with {self.winner.schedule} "
            f"after {self.trials} trials ({failed} failed; {self.ended})"
        )


@dataclass
class Study:
    """One problem under tuning. storage: an Optuna URL, "" for memory. table: the tuned file that
    gets the winner. seeds: whether winners of nearby problems are tried first."""

    space: ProblemSpace
    executor: Executor
    crew: Crew
    sampler: BaseSampler
    ledger: Ledger
    table: pathlib.Path
    arch: str = ""
    storage: str = ""
    seeds: bool = True
    timeout_s: float = 120.0
    progress: Progress | None = None
    _running: dict[int, tuple[Trial, int]] = field(default_factory=dict, init=False)
    _study: optuna.Study = field(init=False)

    @property
    def name(self) -> str:
        """The study's name in its storage."""
        return f"{self.executor} {self.space.target.name} {self.space.problem.key}"

    @property
    def study(self) -> optuna.Study:
        """The Optuna study behind it (after `run` began)."""
        return self._study

    def run(self, budget: Budget) -> Tuning:
        """Tune until the budget is spent; Ctrl-C ends it early with what is known.

        Raises TuningError when no candidate worked, with every reason.
        """
        self._study = patiently(self._open)
        self._take_in_leftovers()
        self._complete_half_told()
        self._take_in_ledger()
        self._take_up_abandoned()
        self._plant_seeds()
        try:
            ended = self._loop(budget)
        except KeyboardInterrupt:
            ended = "interrupted"
        return self._finish(ended)

    # ------------------------------------------------------------------ before
    def _open(self) -> optuna.Study:
        return optuna.create_study(
            study_name=self.name,
            storage=open_storage(self.storage),
            sampler=self.sampler,
            load_if_exists=True,
        )

    def _take_in_leftovers(self) -> None:
        """File what workers finished after the tuner that asked for it had died."""
        for job, outcome in self.crew.leftovers():
            self.ledger.append(
                told.record_of(self.space, schedule, self.executor, outcome, index)
                for index, schedule in enumerate(job.schedules)
            )
        self.crew.confirm_leftovers()

    def _complete_half_told(self) -> None:
        """Finish trials whose tuner died after the last attribute and before the state.

        Their record is in the ledger: its first of the same schedule is what was being told.
        """
        half_told = [t for t in self._trials(TrialState.RUNNING) if "status" in t.user_attrs]
        if not half_told:
            return
        records: dict[int | None, Record] = {}
        for record in self._records():
            records.setdefault(self.space.row(record.schedule), record)
        for trial in half_told:
            known = records.get(self.space.candidates.row(trial.params))
            if known is not None:
                patiently(lambda n=trial.number, r=known: self._tell_state(n, r))  # type: ignore[misc]

    def _take_in_ledger(self) -> None:
        """Tell the study what the ledger knows and it does not: after a crash, in a new storage."""
        records = [r for r in self._records() if told.is_current(r)]
        baselines = [b for r in records for b in r.measurement.baseline_s]
        if baselines and not self._baseline_s():
            self._set_baseline(baselines[0])
        known = self._finished_rows()
        for record in records:
            row = self.space.row(record.schedule)
            if row is not None and row not in known:
                known.add(row)
                trial = told.trial_of(self.space, row, record, self._baseline_s())
                patiently(lambda trial=trial: self._study.add_trial(trial))  # type: ignore[misc]

    def _records(self) -> Iterator[Record]:
        mine = (self.space.problem.key, self.executor, self.space.target.name)
        for record in self.ledger.read():
            if (record.problem, record.executor, record.device) == mine:
                yield record

    def _finished_rows(self) -> set[int]:
        trials = self._trials(TrialState.COMPLETE, TrialState.PRUNED)
        failed = self._trials(TrialState.FAIL)
        finished = [*trials, *(t for t in failed if "status" in t.user_attrs)]
        return {r for t in finished if (r := self.space.candidates.row(t.params)) is not None}

    def _take_up_abandoned(self) -> None:
        """Trials that were running when the last tuner died: failed, and queued again."""
        for trial in self._trials(TrialState.RUNNING):
            self._fail(trial.number)
            row = self.space.candidates.row(trial.params)
            if row is None or row in self._finished_rows():
                continue
            if self._abandoned(row) <= MOST_REQUEUES:
                self._enqueue(trial.params)

    def _abandoned(self, row: int) -> int:
        failed = self._trials(TrialState.FAIL)
        mine = (t for t in failed if self.space.candidates.row(t.params) == row)
        return sum("status" not in t.user_attrs for t in mine)

    def _plant_seeds(self) -> None:
        """Enqueue winners of nearby problems, once, in an empty study."""
        if not self.seeds or self._trials():
            return
        hits = tuned.lookup(self.space.problem, self.executor, self.space.target.name)
        rows = [r for hit in hits if (r := self.space.row(hit.record.schedule)) is not None]
        for row in list(dict.fromkeys(rows))[:SEEDS]:
            self._enqueue(self.space.candidates.params(row))

    # ------------------------------------------------------------------ meanwhile
    def _loop(self, budget: Budget) -> str:
        """Keep the crew busy until there is a reason to stop; gives it."""
        started, deadline = len(self._done()), time.monotonic() + (budget.seconds or math.inf)
        while True:
            reason = self._reason_to_stop(budget, deadline)
            while not reason and len(self._running) < self.crew.depth:
                if len(self._done()) + len(self._running) >= budget.trials or not self._ask():
                    break
            if not self._running:
                return reason or "every candidate was tried"
            self._take(self.crew.collect())
            self._show(len(self._done()) - started)

    def _reason_to_stop(self, budget: Budget, deadline: float) -> str:
        if time.monotonic() > deadline:
            return f"{budget.seconds:g} s are over"
        if len(self._done()) >= budget.trials:
            return f"{budget.trials} trials are done"
        sampler = self.sampler
        if isinstance(sampler, ListSampler) and patiently(lambda: sampler.is_done(self._study)):
            is_exhausted = patiently(lambda: sampler.is_exhausted(self._study))
            return "every candidate was tried" if is_exhausted else "nothing promising is left"
        return ""

    def _done(self) -> list[optuna.trial.FrozenTrial]:
        """Finished trials that were measured or failed by their own fault."""
        trials = self._trials()
        return [t for t in trials if t.state.is_finished() and "status" in t.user_attrs]

    def _ask(self) -> bool:
        """Ask for one more candidate and hand it to the crew; False when the list is exhausted."""
        sampler = self.sampler
        if isinstance(sampler, ListSampler) and patiently(
            lambda: sampler.is_exhausted(self._study)
        ):
            return False
        distributions = self.space.candidates.distributions()
        trial = patiently(lambda: self._study.ask(distributions))
        row = self.space.candidates.row(trial.params)
        if row is None:
            patiently(lambda: trial.set_user_attr("status", "illegal"))
            self._fail(trial.number)
            return True
        self._running[trial.number] = trial, row
        self.crew.submit(self._job(trial.number, [self.space.schedule(row)]))
        return True

    def _job(self, number: int, schedules: list[Schedule]) -> Job:
        return Job(
            number,
            self.space.problem,
            self.executor,
            tuple(schedules),
            "trial" if number >= 0 else "final",
            self.arch,
            self._best_speedup(),
            self.timeout_s,
        )

    def _take(self, outcome: Outcome) -> None:
        """Ledger first, then the study: what was measured outlives whatever comes now."""
        trial, row = self._running.pop(outcome.number)
        record = told.record_of(self.space, self.space.schedule(row), self.executor, outcome)
        self.ledger.append([record])
        self.crew.confirm(outcome)
        measured = record.measurement
        if measured.baseline_s and not self._baseline_s():
            self._set_baseline(measured.baseline_s[0])
        patiently(lambda: self._tell(trial, record))

    def _tell(self, trial: Trial, record: Record) -> None:
        """Safe to repeat: a trial that is finished already stays as it is.

        "status" is written last, so a running trial that has it lacks only its state.
        """
        found = told.attributes(record)
        try:
            if told.state_of(record.measurement) == TrialState.PRUNED:
                trial.report(told.value_s(record.measurement, self._baseline_s()), 0)
            for name in sorted(found, key="status".__eq__):
                trial.set_user_attr(name, found[name])
        except optuna.exceptions.UpdateFinishedTrialError:
            return
        self._tell_state(trial.number, record)

    def _tell_state(self, number: int, record: Record) -> None:
        state = told.state_of(record.measurement)
        is_complete = state == TrialState.COMPLETE
        value = told.value_s(record.measurement, self._baseline_s()) if is_complete else None
        self._study.tell(number, value, state=state, skip_if_finished=True)

    def _trials(self, *states: TrialState) -> list[optuna.trial.FrozenTrial]:
        """Trials in one of `states` (none named: all), however long the database is away."""
        wanted = states or None
        found: list[optuna.trial.FrozenTrial] = patiently(
            lambda: self._study.get_trials(deepcopy=False, states=wanted)
        )
        return found

    def _fail(self, number: int) -> None:
        state = TrialState.FAIL
        patiently(lambda: self._study.tell(number, state=state, skip_if_finished=True))

    def _enqueue(self, params: dict[str, Any]) -> None:
        patiently(lambda: self._study.enqueue_trial(params))

    def _baseline_s(self) -> float:
        return float(patiently(lambda: self._study.user_attrs).get(told.BASELINE, 0.0))

    def _set_baseline(self, seconds: float) -> None:
        patiently(lambda: self._study.set_user_attr(told.BASELINE, seconds))

    def _best(self) -> optuna.trial.FrozenTrial | None:
        done = self._trials(TrialState.COMPLETE)
        return min(done, key=lambda t: (t.value, t.number), default=None)

    def _best_speedup(self) -> float:
        best = self._best()
        return float(best.user_attrs.get("speedup", 0.0)) if best else 0.0

    def _show(self, done: int) -> None:
        if self.progress is None:
            return
        best = self._best()
        if best is None:
            self.progress.update(done, math.inf, 0.0, "")
        else:
            assert best.value is not None
            attrs = best.user_attrs
            self.progress.update(
                done, best.value, attrs.get("speedup", 0.0), attrs.get("schedule", "")
            )

    # ------------------------------------------------------------------ after
    def _finish(self, ended: str) -> Tuning:
        rows = told.best_rows(self._trials(TrialState.COMPLETE), self.space, FINALISTS)
        if not rows:
            raise TuningError(self._all_failed(ended))
        records = [] if ended == "interrupted" else self._finals(self._finalists(rows))
        winner = winner_of(records) or self._recorded(rows[0])
        tuned.update(self.table, tuned.Table.of([winner]))
        done = self._done()
        failed = (t for t in done if t.state == TrialState.FAIL)
        failures = dict(collections.Counter(str(t.user_attrs["status"]) for t in failed))
        return Tuning(self.space.problem.key, winner, len(done), failures, ended)

    def _finalists(self, rows: list[int]) -> list[Schedule]:
        """The best rows, and what would serve untuned: a record must not make a product slower."""
        best = [self.space.schedule(row) for row in rows]
        untuned = self.space.untuned
        return best if untuned is None or untuned in best else [*best, untuned]

    def _finals(self, schedules: list[Schedule]) -> list[Record]:
        """Records of finalists, measured again side by side with XLA.

        When that costs the measuring process its life, each is measured alone.
        """
        self.crew.submit(self._job(NUMBER_OF_FINALS, schedules))
        outcome = self.crew.collect()
        lost = {m.status for m in outcome.measurements} & {"crashed", "timeout"}
        if lost and len(schedules) > 1:
            return [record for one in schedules for record in self._finals([one])]
        records = [
            told.record_of(self.space, schedule, self.executor, outcome, index)
            for index, schedule in enumerate(schedules)
        ]
        self.ledger.append(records)
        self.crew.confirm(outcome)
        return records

    def _recorded(self, row: int) -> Record:
        """The latest successful record of a row: the ledger has one for every complete trial."""
        schedule = self.space.schedule(row)
        mine = [
            r for r in self._records() if r.schedule == schedule and r.measurement.status == "ok"
        ]
        return mine[-1]

    def _all_failed(self, ended: str) -> str:
        reasons = collections.Counter(
            f"{t.user_attrs['status']}: {t.user_attrs.get('reason', '')[:200]}"
            for t in self._done()
        )
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        return (
            f"no candidate of {self.space.problem} on {self.space.target.name} by {self.executor} "
            f"worked ({ended}): {listed or 'none was tried'}"
        )
