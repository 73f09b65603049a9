"""Exhaustive host recordings as replay sets, scored by jaxpipe's own models.

In: recorded/host_*_exhaustive_*.jsonl.gz (record_host.py). Out: one Replay a problem, whose
candidates are those that `tune_matmul.py` would choose from.
"""

from __future__ import annotations

import gzip
import pathlib
from collections import defaultdict
from dataclasses import replace

import numpy as np

from jaxpipe.keys import problem_from_key
from jaxpipe.model import host as host_model
from jaxpipe.model.table import table_of
from jaxpipe.records import Record
from jaxpipe.residual import Residual, fit
from jaxpipe.target import HostDevice, host_device
from jaxpipe.tune.problem_space import problem_space
from jaxpipe.tune.replay import Replay

RECORDED = pathlib.Path(__file__).parent / "recorded"


def host_records(clock: str = "wall") -> dict[str, list[Record]]:
    """Records of each problem, over all files of that clock, as the present model predicts them."""
    groups: dict[str, dict[str, Record]] = defaultdict(dict)
    for path in sorted(RECORDED.glob(f"host_*_exhaustive_{clock}.jsonl.gz")):
        with gzip.open(path, "rt") as stream:
            for record in map(Record.from_json, stream):
                groups[record.problem][str(record.schedule)] = record
    return {key: _predicted(key, list(rows.values())) for key, rows in groups.items()}


def _predicted(key: str, records: list[Record]) -> list[Record]:
    problem, table = problem_from_key(key), table_of([r.schedule for r in records])
    seconds = host_model.predict_many(problem, table, host_device())
    return [replace(r, predicted_s=float(s)) for r, s in zip(records, seconds, strict=True)]


def host_replay(
    key: str, records: list[Record], host: HostDevice, residual: Residual | None = None
) -> Replay:
    """The recording of one problem; a schedule of the space that was not recorded fails.

    Schedules took turns in rounds, and a round in which the machine was slow was slow for all: each
    sample is divided by its round's median over the schedules, relative to their own.
    """
    space = problem_space(problem_from_key(key), host, residual)
    seconds, spread = np.full(len(space), np.nan), np.zeros(len(space))
    samples = np.array([record.measurement.samples_s for record in records])
    own = np.median(samples, axis=1, keepdims=True)
    samples /= np.median(samples / own, axis=0, keepdims=True)
    for record, mine in zip(records, samples, strict=True):
        row = space.row(record.schedule)
        if row is not None:
            seconds[row] = np.median(mine)
            low, high = np.quantile(mine, [0.25, 0.75])
            spread[row] = (high - low) / 1.35 / seconds[row]
    return Replay(key, space.candidates, seconds, spread)


def host_sets(clock: str = "wall", learnt: bool = False) -> dict[str, Replay]:
    """Every recorded problem by a short name such as host_512x768x768.

    learnt: correct each problem's prior by what the recordings of the OTHER problems teach.
    """
    host = host_device()
    recorded = host_records(clock)
    return {
        "host_" + key.split()[1]: host_replay(
            key, records, host, _others(recorded, key) if learnt else None
        )
        for key, records in recorded.items()
    }


def _others(recorded: dict[str, list[Record]], key: str) -> Residual | None:
    rows = [r for other, records in recorded.items() if other != key for r in records]
    host = host_device()
    return fit(rows, {host.name: host}, "host")
