"""Predictions, measurements and tuned records: JSON-able rows that travel between model, tuner,
tables and people. It must not know how they are made.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from jaxpipe.errors import RecordError
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule

Status = Literal[
    "ok", "compile_failed", "launch_failed", "wrong_result", "timeout", "pruned", "crashed"
]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of (problem, schedule, device): seconds, and the parts that make it up.

    bound names what limits it ("tensor", "shared", "l2", "dram", "latency", ...); parts maps the
    names of phases to seconds.
    """

    seconds: float
    bound: str
    parts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One candidate that was run, or why it was not: samples in seconds, in order.

    baseline_s are XLA's samples, interleaved with ours: samples_s[i] and baseline_s[i] are of one
    block. A failure is a status with a reason. foreign_load: cores that other processes kept busy
    meanwhile (0.0 is a quiet machine; above 0.1 the times are not to be trusted).
    """

    status: Status
    samples_s: tuple[float, ...] = ()
    baseline_s: tuple[float, ...] = ()
    reason: str = ""
    max_error: float = 0.0
    foreign_load: float = 0.0

    @property
    def speedup(self) -> float:
        """Median over blocks of baseline time / our time; 0.0 without a baseline."""
        pairs = zip(self.baseline_s, self.samples_s, strict=False)
        ratios = [baseline / ours for baseline, ours in pairs]
        return statistics.median(ratios) if ratios else 0.0

    @property
    def median_s(self) -> float:
        """Median of the samples; infinity without any."""
        return statistics.median(self.samples_s) if self.samples_s else float("inf")


@dataclass(frozen=True, slots=True)
class Record:
    """One measured (problem, schedule, device) with the versions that make it comparable."""

    problem: str
    executor: Literal["cuda", "host"]
    device: str
    schedule: Schedule
    measurement: Measurement
    predicted_s: float = 0.0
    resources: tuple[tuple[str, int], ...] = ()
    versions: tuple[tuple[str, str], ...] = field(default_factory=tuple)

    def to_json(self) -> str:
        """One line of JSON."""
        row = {
            "problem": self.problem,
            "executor": self.executor,
            "device": self.device,
            "schedule": self.schedule.to_json(),
            "measurement": asdict(self.measurement),
            "predicted_s": self.predicted_s,
            "resources": dict(self.resources),
            "versions": dict(self.versions),
        }
        return json.dumps(row, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Record:
        """The record on one line; RecordError says what is wrong with it."""
        try:
            row: Mapping[str, Any] = json.loads(line)
            kinds: dict[str, type[GpuSchedule] | type[HostSchedule]]
            kinds = {"cuda": GpuSchedule, "host": HostSchedule}
            measured = dict(row["measurement"])
            measured["samples_s"] = tuple(measured["samples_s"])
            measured["baseline_s"] = tuple(measured["baseline_s"])
            return cls(
                problem=row["problem"],
                executor=row["executor"],
                device=row["device"],
                schedule=kinds[row["executor"]].from_json(row["schedule"]),
                measurement=Measurement(**measured),
                predicted_s=row["predicted_s"],
                resources=tuple(sorted(row["resources"].items())),
                versions=tuple(sorted(row["versions"].items())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"not a jaxpipe record ({error!r}): {line[:200]}") from error
