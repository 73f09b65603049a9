"""What is asked of whoever measures, and what comes back: data that travels between processes.

In: a problem, schedules, how thoroughly. Out: an Outcome with one Measurement a schedule. It must
not know samplers, storages or how anything is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from jaxpipe.errors import RecordError
from jaxpipe.keys import problem_from_key
from jaxpipe.problem import Problem
from jaxpipe.records import Measurement
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule

Executor = Literal["cuda", "host"]
Effort = Literal["trial", "final"]
KINDS: Mapping[str, type[GpuSchedule] | type[HostSchedule]] = {
    "cuda": GpuSchedule,
    "host": HostSchedule,
}


@dataclass(frozen=True, slots=True)
class Job:
    """Schedules of one problem to be measured together.

    number: the trial's, or a negative one for finals. effort "trial" may stop early: a schedule
    that is clearly slower than `incumbent` (its speedup over XLA) is "pruned". arch: exact compile
    target of "cuda". timeout_s: after so long without an answer the measuring process is killed.
    """

    number: int
    problem: Problem
    executor: Executor
    schedules: tuple[Schedule, ...]
    effort: Effort = "trial"
    arch: str = ""
    incumbent: float = 0.0
    timeout_s: float = 120.0

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {
            "number": self.number,
            "problem": self.problem.key,
            "executor": self.executor,
            "schedules": [s.to_json() for s in self.schedules],
            "effort": self.effort,
            "arch": self.arch,
            "incumbent": self.incumbent,
            "timeout_s": self.timeout_s,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Job:
        """The job in a plain dict; RecordError when it is none."""
        try:
            kind = KINDS[row["executor"]]
            schedules = tuple(kind.from_json(s) for s in row["schedules"])
            rest = {**row, "problem": problem_from_key(row["problem"]), "schedules": schedules}
            return cls(**rest)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"not a tuning job ({error!r}): {str(row)[:200]}") from error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: one Measurement a schedule, in order; what the compiler said of the
    first; seconds that compiling took; versions under which it was measured; and by whom."""

    number: int
    measurements: tuple[Measurement, ...]
    resources: tuple[tuple[str, int], ...] = ()
    compile_s: float = 0.0
    versions: tuple[tuple[str, str], ...] = ()
    worker: str = ""

    def dumps(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def loads(cls, text: str) -> Outcome:
        """The outcome in JSON text; RecordError when it is none."""
        try:
            row = json.loads(text)
            return cls(
                row["number"],
                tuple(measurement_from_json(m) for m in row["measurements"]),
                tuple((name, value) for name, value in row["resources"]),
                row["compile_s"],
                tuple((name, value) for name, value in row["versions"]),
                row["worker"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"not a tuning outcome ({error!r}): {text[:200]}") from error


def measurement_from_json(row: Mapping[str, Any]) -> Measurement:
    """A Measurement from its plain dict."""
    lists = {name: tuple(row[name]) for name in ("samples_s", "baseline_s")}
    return Measurement(**{**row, **lists})


class Crew(Protocol):
    """Whoever measures: this machine, a recording, or workers elsewhere."""

    depth: int
    """How many jobs it wants at a time to be kept busy."""

    def submit(self, job: Job) -> None:
        """Take a job; returns at once."""

    def collect(self) -> Outcome:
        """Wait for the next finished job, the oldest first where several are."""

    def leftovers(self) -> list[tuple[Job, Outcome]]:
        """Outcomes that were finished for a tuner that is no more."""

    def confirm_leftovers(self) -> None:
        """What `leftovers` gave is in the ledger."""

    def confirm(self, outcome: Outcome) -> None:
        """A collected outcome is in the ledger: nobody need keep it."""

    def close(self) -> None:
        """Let go of processes and connections; jobs under way are dropped."""
