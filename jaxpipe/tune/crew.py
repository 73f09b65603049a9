"""Who measures: this machine with its child processes, or a recording.

In: Jobs. Out: Outcomes, in the order of submission. Compiling runs ahead in several processes with
limits; measuring runs in one process a device, which is started again after a crash or a hang.
It must not know samplers or storages.
"""

from __future__ import annotations

import collections
import concurrent.futures
import platform
import queue
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpipe.records import Measurement, Status
from jaxpipe.tune.isolated import ChildLost, IsolatedProcess
from jaxpipe.tune.job import Job, Outcome, measurement_from_json
from jaxpipe.tune.problem_space import ProblemSpace
from jaxpipe.tune.replay import Replay

COMPILE_MEMORY_BYTES = 16 << 30
LEAST_COMPILE_TIMEOUT_S, COMPILE_PATIENCE = 30.0, 5.0
"""A compile may take 30 s, or five times the median of those before: some candidates explode."""


class LocalCrew:
    """This machine. compile_jobs: processes that compile ahead (only "cuda" has what to compile).

    measuring: the module of the measuring child (tests put in one of their own).
    """

    def __init__(
        self,
        compile_jobs: int = 0,
        *,
        measuring: str = "jaxpipe.tune.serve_measure",
        compiling: str = "jaxpipe.tune.serve_compile",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._measuring = IsolatedProcess(measuring, environment=environment or {})
        self._compilers: queue.SimpleQueue[IsolatedProcess] = queue.SimpleQueue()
        self._all = [IsolatedProcess(compiling, COMPILE_MEMORY_BYTES) for _ in range(compile_jobs)]
        for child in self._all:
            self._compilers.put(child)
        self._pool = concurrent.futures.ThreadPoolExecutor(max(1, compile_jobs))
        self._waiting: collections.deque[tuple[Job, concurrent.futures.Future[Any]]]
        self._waiting = collections.deque()
        self._compile_s: list[float] = []
        self.depth = 2 * compile_jobs + 1 if compile_jobs else 1

    def submit(self, job: Job) -> None:
        """Start compiling the job; it is measured when it is collected."""
        self._waiting.append((job, self._pool.submit(self._compiled, job)))

    def collect(self) -> Outcome:
        """Measure the oldest job."""
        job, future = self._waiting[0]
        built = future.result()
        outcome = self._measured(job, built)
        self._waiting.popleft()
        return outcome

    def leftovers(self) -> list[tuple[Job, Outcome]]:
        """None: what dies with this process was not finished."""
        return []

    def confirm_leftovers(self) -> None:
        """Nothing to confirm."""

    def confirm(self, outcome: Outcome) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        """End all children."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in (self._measuring, *self._all):
            child.close()

    def _compiled(self, job: Job) -> dict[str, Any]:
        """What the compiling child says; a schedule of a final was compiled as a trial."""
        built: dict[str, Any] = {"status": "ok", "reason": "", "resources": {}, "seconds": 0.0}
        if not self._all or job.executor != "cuda" or job.effort == "final":
            return built
        child = self._compilers.get()
        try:
            built = child.call(job.to_json(), self._compile_timeout_s())
            self._compile_s.append(built["seconds"])
        except ChildLost as lost:
            status = "timeout" if lost.status == "timeout" else "crashed"
            built |= {"status": status, "reason": f"compiling: {lost}"}
        finally:
            self._compilers.put(child)
        return built

    def _compile_timeout_s(self) -> float:
        usual = statistics.median(self._compile_s) if self._compile_s else 0.0
        return max(LEAST_COMPILE_TIMEOUT_S, COMPILE_PATIENCE * usual)

    def _measured(self, job: Job, built: Mapping[str, Any]) -> Outcome:
        resources = tuple(sorted(built["resources"].items()))
        outcome = Outcome(job.number, (), resources, built["seconds"], worker=platform.node())
        if built["status"] != "ok":
            return replace(
                outcome, measurements=(Measurement(built["status"], reason=built["reason"]),)
            )
        try:
            answer = self._measuring.call(job.to_json(), job.timeout_s)
        except ChildLost as lost:
            failed: Status = lost.status
            lines = tuple(Measurement(failed, reason=f"measuring: {lost}") for _ in job.schedules)
            return replace(outcome, measurements=lines)
        found = tuple(measurement_from_json(m) for m in answer["measurements"])
        known = tuple(sorted(answer["versions"].items()))
        return replace(outcome, measurements=found, versions=known)


class ReplayCrew:
    """A recording as a device: `replay` has the times of `space`'s rows."""

    depth = 1

    def __init__(self, space: ProblemSpace, replay: Replay, seed: int = 0) -> None:
        self._space, self._replay = space, replay
        self._rng = np.random.default_rng([seed, 11])
        self._waiting: collections.deque[Job] = collections.deque()

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._waiting.append(job)

    def collect(self) -> Outcome:
        """Look the oldest job up."""
        job = self._waiting.popleft()
        found = tuple(self._look_up(job, schedule) for schedule in job.schedules)
        return Outcome(
            job.number, found, versions=(("replay", self._replay.name),), worker="replay"
        )

    def leftovers(self) -> list[tuple[Job, Outcome]]:
        """None: what dies with this process was not finished."""
        return []

    def confirm_leftovers(self) -> None:
        """Nothing to confirm."""

    def confirm(self, outcome: Outcome) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        """Nothing to let go of."""

    def _look_up(self, job: Job, schedule: Any) -> Measurement:
        row = self._space.row(schedule)
        runs = 3 if job.effort == "trial" else 15
        samples = () if row is None else self._replay.measure(row, self._rng, runs)
        if not samples:
            return Measurement("launch_failed", reason="failed when it was recorded")
        return Measurement("ok", samples)
