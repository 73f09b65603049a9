"""What measurements of earlier shapes and devices say about a model's errors.

In: records (measured and predicted seconds of schedules). Out: a correction of log predicted
seconds for any schedule of any problem: boosted trees on the residual of the analytical model,
which is smoother than time itself and carries over between shapes and devices. numpy alone; tables
are JSON, shipped and the user's. It must not know Optuna or how anything is measured.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxpipe.dtypes import DTYPES
from jaxpipe.errors import RecordError
from jaxpipe.keys import problem_from_key
from jaxpipe.model import seconds
from jaxpipe.model.table import ScheduleTable, table_of
from jaxpipe.problem import Problem
from jaxpipe.records import Record
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Device, HostDevice

Floats = NDArray[np.float64]
FORMAT = 1
ROUNDS, DEPTH, RATE = 80, 4, 0.15
LEAST_LEAF, SHRINKAGE = 8, 8.0
MOST_EXAMPLES = 20_000
LARGEST = 1.5
"""Corrections beyond e**1.5 are of what failed to be modelled at all: not extrapolated."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree of fixed depth in heap order: `feature` and `threshold` of inner nodes (go right
    when above), `value` of leaves."""

    feature: NDArray[np.int64]
    threshold: Floats
    value: Floats

    def predict(self, table: Floats) -> Floats:
        """The leaf value of every row."""
        node = np.zeros(len(table), dtype=np.int64)
        rows = np.arange(len(table))
        for _ in range(int(math.log2(len(self.value)))):
            node = 2 * node + 1 + (table[rows, self.feature[node]] > self.threshold[node])
        return np.asarray(self.value[node - len(self.feature)])


@dataclass(frozen=True, slots=True)
class Residual:
    """Trees over named features; `correction` is their sum, in natural log of seconds."""

    executor: str
    features: tuple[str, ...]
    trees: tuple[Tree, ...]
    examples: int = 0

    def correction(
        self, problem: Problem, table: ScheduleTable[Any], target: Device | HostDevice
    ) -> Floats:
        """(len(table),) to be added to the log of the model's seconds."""
        rows = _matrix(problem, table, target, self.features)
        total = np.zeros(len(rows))
        for tree in self.trees:
            total += tree.predict(rows)
        return np.clip(total, -LARGEST, LARGEST)

    def dumps(self) -> str:
        """JSON text."""
        trees = [
            {
                "feature": t.feature.tolist(),
                "threshold": [float(f"{x:.6g}") for x in t.threshold],
                "value": [float(f"{x:.5g}") for x in t.value],
            }
            for t in self.trees
        ]
        head = {"format": FORMAT, "executor": self.executor, "features": self.features}
        return json.dumps({**head, "examples": self.examples, "trees": trees}) + "\n"

    @classmethod
    def loads(cls, text: str, where: str = "text") -> Residual:
        """The model in JSON text; RecordError names `where` and what is wrong."""
        try:
            row = json.loads(text)
            if row["format"] != FORMAT:
                raise ValueError(f"format {row['format']}, this jaxpipe reads {FORMAT}")
            trees = tuple(
                Tree(
                    np.array(t["feature"], dtype=np.int64),
                    np.array(t["threshold"]),
                    np.array(t["value"]),
                )
                for t in row["trees"]
            )
            return cls(row["executor"], tuple(row["features"]), trees, row["examples"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{where} is no residual model ({error})") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Residual:
        """The model in a file; RecordError when it cannot be read."""
        try:
            return cls.loads(pathlib.Path(path).read_text(), str(path))
        except OSError as error:
            raise RecordError(f"cannot read a residual model from {path}: {error}") from error


def shipped(executor: str) -> Residual | None:
    """The model that comes with jaxpipe, or None."""
    path = pathlib.Path(__file__).parent / "data" / "tuned" / f"residual_{executor}.json"
    return Residual.load(path) if path.exists() else None


# ---------------------------------------------------------------------------------- features


def _problem_features(p: Problem) -> dict[str, float]:
    size = DTYPES[p.dtype].size_bytes
    return {
        "log_m": math.log2(max(p.m, 1)),
        "log_n": math.log2(max(p.n, 1)),
        "log_k": math.log2(max(p.k, 1)),
        "log_batch": math.log2(max(p.batch_size, 1)),
        "operand_bytes": float(size),
        "log_intensity": math.log2(max(p.flops, 1) / max(p.bytes_min, 1)),
    }


def _target_features(target: Device | HostDevice) -> dict[str, float]:
    if isinstance(target, HostDevice):
        return {
            "log_threads": math.log2(target.threads),
            "log_l2_bytes": math.log2(target.l2_bytes),
            "lanes": float(target.kernels.lanes),
        }
    return {"log_sms": math.log2(target.sm_count), "log_dram_bps": math.log2(target.dram_bps)}


def _schedule_features(problem: Problem, table: ScheduleTable[Any]) -> dict[str, Floats]:
    """Every field as a number (words by rank of their text), and how tiles fit the problem."""
    found = {name: _number(np.asarray(column)) for name, column in table.columns.items()}
    block_m, block_n = ("block_m", "block_n") if table.kind is GpuSchedule else ("block_m", "strip")
    for name, extent in ((block_m, problem.m), (block_n, problem.n)):
        block = np.where(table[name] > 0, table[name], max(extent, 1))
        tiles = extent / block
        found[f"log_tiles_{name}"] = np.log2(np.maximum(np.ceil(tiles), 1))
        found[f"padding_{name}"] = np.ceil(tiles) / np.maximum(tiles, 1e-9)
    return found


def _number(column: NDArray[Any]) -> Floats:
    if column.dtype.kind in "bif":
        return np.asarray(column, dtype=np.float64)
    words = {"ampere": 0.0, "hopper": 1.0, "packed": 0.0, "stream": 1.0}
    words |= {"panel": 0.0, "row": 1.0, "item": 0.0, "shared": 1.0}
    return np.array([words.get(str(word), -1.0) for word in column])


def _matrix(
    problem: Problem,
    table: ScheduleTable[Any],
    target: Device | HostDevice,
    names: Sequence[str],
) -> Floats:
    scalars = _problem_features(problem) | _target_features(target)
    columns = _schedule_features(problem, table)
    zero = np.zeros(len(table))
    return np.stack(
        [columns[n] if n in columns else zero + scalars.get(n, 0.0) for n in names], axis=1
    )


# ---------------------------------------------------------------------------------- fitting


def fit(
    records: Iterable[Record], targets: Mapping[str, Device | HostDevice], executor: str
) -> Residual | None:
    """Trees on log(measured / predicted) of the successful `records` of `executor`.

    Predicted is what the present model says, not what an older one did when the record was made.
    Only differences within a problem count: each problem's mean residual is taken off, so that a
    model which is slow everywhere teaches nothing. targets: device rows by name; records of other
    devices, or that the model does not admit, are left out. None when fewer than 2 * LEAST_LEAF
    remain.
    """
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        usable = record.measurement.status in ("ok", "pruned")
        if usable and record.executor == executor and record.device in targets:
            groups[record.problem, record.device].append(record)
    names: tuple[str, ...] = ()
    tables, values = [], []
    for (key, device), group in groups.items():
        problem, target = problem_from_key(key), targets[device]
        table: ScheduleTable[Any] = table_of([r.schedule for r in group])
        predicted = seconds.predict_many(problem, table, target)
        admitted = np.isfinite(predicted) & (predicted > 0)
        if not admitted.any():
            continue
        names = names or _names(problem, table, target)
        tables.append(_matrix(problem, table, target, names)[admitted])
        measured = np.array([r.measurement.median_s for r in group])
        values.append(_residuals(measured[admitted], predicted[admitted]))
    if not tables or sum(map(len, values)) < 2 * LEAST_LEAF:
        return None
    x, y = np.concatenate(tables), np.concatenate(values)
    return Residual(executor, names, _boost(*_thinned(x, y)), len(y))


def _names(
    problem: Problem, table: ScheduleTable[Any], target: Device | HostDevice
) -> tuple[str, ...]:
    scalars = _problem_features(problem) | _target_features(target)
    return (*_schedule_features(problem, table), *scalars)


def _residuals(measured: Floats, predicted: Floats) -> Floats:
    logs = np.log(measured / predicted)
    return np.asarray(logs - np.median(logs))


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    if len(y) <= MOST_EXAMPLES:
        return x, y
    keep = np.random.default_rng(0).permutation(len(y))[:MOST_EXAMPLES]
    return x[keep], y[keep]


def _boost(x: Floats, y: Floats) -> tuple[Tree, ...]:
    """Least-squares boosting over binned features."""
    edges = [_edges(column) for column in x.T]
    bins = np.stack([np.searchsorted(e, c) for e, c in zip(edges, x.T, strict=True)], axis=1)
    left = y.copy()
    trees = []
    for _ in range(ROUNDS):
        tree = _grow(bins, edges, left)
        left = left - tree.predict(x)
        trees.append(tree)
    return tuple(trees)


def _edges(column: Floats) -> Floats:
    """Up to 32 thresholds between the values of a feature."""
    values = np.unique(column)
    if len(values) > 33:
        values = np.unique(np.quantile(values, np.linspace(0, 1, 33)))
    return np.asarray((values[1:] + values[:-1]) / 2)


def _grow(bins: NDArray[np.int64], edges: list[Floats], y: Floats) -> Tree:
    """One tree level by level; every inner node holds the split of largest gain."""
    inner = 2**DEPTH - 1
    feature, threshold = np.zeros(inner, dtype=np.int64), np.full(inner, 1e300)
    node = np.zeros(len(y), dtype=np.int64)
    for index in range(inner):
        here = np.flatnonzero(node == index)
        split = _best_split(bins[here], edges, y[here]) if len(here) >= 2 * LEAST_LEAF else None
        if split is not None:
            feature[index], place = split
            threshold[index] = edges[feature[index]][place]
            goes_right = bins[here, feature[index]] > place
        else:
            goes_right = np.zeros(len(here), dtype=np.bool_)
        node[here] = 2 * index + 1 + goes_right
    leaf = node - inner
    count = np.bincount(leaf, minlength=inner + 1)
    total = np.bincount(leaf, weights=y, minlength=inner + 1)
    return Tree(feature, threshold, RATE * total / (count + SHRINKAGE))


def _best_split(bins: NDArray[np.int64], edges: list[Floats], y: Floats) -> tuple[int, int] | None:
    """(feature, place of its threshold) with the largest fall of squared error, or None."""
    best, found = 1e-9, None
    for feature, thresholds in enumerate(edges):
        if not len(thresholds):
            continue
        size = len(thresholds) + 1
        count = np.cumsum(np.bincount(bins[:, feature], minlength=size))[:-1]
        total = np.cumsum(np.bincount(bins[:, feature], weights=y, minlength=size))[:-1]
        rest = len(y) - count
        gain = total**2 / (count + SHRINKAGE) + (y.sum() - total) ** 2 / (rest + SHRINKAGE)
        gain = np.where((count >= LEAST_LEAF) & (rest >= LEAST_LEAF), gain, -np.inf)
        place = int(np.argmax(gain))
        base = y.sum() ** 2 / (len(y) + SHRINKAGE)
        if gain[place] - base > best:
            best, found = float(gain[place] - base), (feature, place)
    return found
