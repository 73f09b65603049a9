"""Exhaustive host recordings as replay sets, scored by jaxpipe's own models.

In: recorded/host_*_exhaustive_*.jsonl.gz (record_host.py). Out: one Replay a problem and CPU, whose
candidates are those of the space that `tune_matmul.py` would choose from, as far as recorded.
"""

from __future__ import annotations

import gzip
import pathlib
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import recorded_hosts
from numpy.typing import NDArray

from jaxpipe.keys import problem_from_key
from jaxpipe.model.table import table_of
from jaxpipe.records import Record
from jaxpipe.residual import Residual, fit
from jaxpipe.space import Space
from jaxpipe.target import HostDevice
from jaxpipe.tune.problem_space import problem_space
from jaxpipe.tune.replay import Replay

RECORDED = pathlib.Path(__file__).parent / "recorded"
Key = tuple[str, str]
"""Device and problem."""


def host_records(clock: str = "wall") -> dict[Key, list[Record]]:
    """Records of each problem on each CPU, the latest of each schedule."""
    groups: dict[Key, dict[str, Record]] = defaultdict(dict)
    for path in sorted(RECORDED.glob(f"host_*_exhaustive_{clock}.jsonl.gz")):
        with gzip.open(path, "rt") as stream:
            for record in map(Record.from_json, stream):
                groups[record.device, record.problem][str(record.schedule)] = record
    return {key: list(rows.values()) for key, rows in groups.items()}


def host_replay(
    name: str, records: list[Record], host: HostDevice, residual: Residual | None = None
) -> Replay:
    """The recording of one problem: what was recorded is the space."""
    problem = problem_from_key(records[0].problem)
    recorded = Space(problem, table_of([r.schedule for r in records]))
    samples = steady(records)
    seconds = np.median(samples, axis=1)
    low, high = np.quantile(samples, [0.25, 0.75], axis=1)
    spread = (high - low) / 1.35 / seconds
    candidates = problem_space(problem, host, residual, recorded).candidates
    return Replay(name, candidates, seconds, spread)


def steady(records: list[Record]) -> NDArray[np.float64]:
    """(records, rounds) samples in seconds, freed from drift.

    Schedules took turns in rounds, and a round in which the machine was slow was slow for all: each
    sample is divided by its round's median over the schedules, relative to their own.
    """
    samples = np.array([record.measurement.samples_s for record in records])
    own = np.median(samples, axis=1, keepdims=True)
    return np.asarray(samples / np.median(samples / own, axis=0, keepdims=True))


def host_sets(
    clock: str = "wall", learnt: bool = False, asked: Callable[[str], bool] = bool
) -> dict[str, Replay]:
    """Recordings by a name such as host_amd_f25m17_2t_512x768x768, of names that are `asked` for.

    learnt: correct each problem's prior by what the recordings of the OTHER problems teach.
    """
    hosts, recorded = recorded_hosts.load(), host_records(clock)
    return {
        (name := set_name(key)): host_replay(
            name, records, hosts[key[0]], _others(recorded, key, hosts) if learnt else None
        )
        for key, records in recorded.items()
        if asked(set_name(key))
    }


def set_name(key: Key) -> str:
    """What a recording is called on the command line and in rows."""
    device, problem = key
    return f"host_{device}_{problem.split()[1]}"


def device_in(name: str) -> str:
    """The CPU of which `name` is a set; "" for sets of other people's kernels."""
    return name.removeprefix("host_").rpartition("_")[0] if name.startswith("host_") else ""


def _others(
    recorded: Mapping[Key, list[Record]], key: Key, hosts: Mapping[str, HostDevice]
) -> Residual | None:
    """What every other problem teaches, on whichever CPU."""
    rows = [r for other, records in recorded.items() if other[1] != key[1] for r in records]
    return fit(rows, hosts, "host")
