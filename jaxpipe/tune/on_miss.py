"""A short search for one problem in the middle of a trace: JAXPIPE_ON_MISS=tune.

In: a problem, an executor, a device. Out: the winner's record, filed in the user's table, so that
neither this process nor another searches again. Measuring happens in a child process, as always.
"""

from __future__ import annotations

import threading

import optuna

from jaxpipe import choose, residual, settings, tuned
from jaxpipe.problem import Problem
from jaxpipe.records import Record
from jaxpipe.target import Device, HostDevice
from jaxpipe.tune.crew import LocalCrew
from jaxpipe.tune.job import Executor
from jaxpipe.tune.ledger import Ledger, default_path
from jaxpipe.tune.problem_space import problem_space
from jaxpipe.tune.progress import Progress
from jaxpipe.tune.sampler import PriorSampler
from jaxpipe.tune.study import Budget, Study

CHILD = {"JAXPIPE_ON_MISS": "model", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""The measuring child searches for nothing, and takes of a GPU's memory only what it needs."""
_ONE_AT_A_TIME = threading.Lock()


def tune(problem: Problem, executor: Executor, target: Device | HostDevice) -> Record:
    """The best of JAXPIPE_MISS_TRIALS schedules, fewer when JAXPIPE_MISS_SECONDS are over.

    Candidates are checked against XLA before their time counts; the finals are measured beside
    XLA, so the record says which of the two is faster. Raises TuningError when none worked.
    """
    budget = Budget(settings.whole("JAXPIPE_MISS_TRIALS"), settings.whole("JAXPIPE_MISS_SECONDS"))
    with _ONE_AT_A_TIME:
        known = tuned.read(tuned.user_path(target.name)).exact(problem, executor, target.name)
        if known is not None and choose.is_legal(known.schedule, problem, target):
            return known  # another thread was first
        return _search(problem, executor, target, budget)


def _search(
    problem: Problem, executor: Executor, target: Device | HostDevice, budget: Budget
) -> Record:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = problem_space(problem, target, residual.shipped(executor))
    jobs = settings.whole("JAXPIPE_COMPILE_JOBS") if executor == "cuda" else 0
    progress = Progress(budget.trials, budget.seconds)
    progress.say(f"JAXPIPE_ON_MISS=tune: {problem} on {target.name}, {len(space)} schedules")
    study = Study(
        space,
        executor,
        LocalCrew(jobs, environment=CHILD),
        PriorSampler(space.candidates),
        Ledger(default_path(target.name)),
        tuned.user_path(target.name),
        arch=target.arch if isinstance(target, Device) else "",
        progress=progress,
    )
    try:
        return study.run(budget).winner
    finally:
        study.crew.close()
