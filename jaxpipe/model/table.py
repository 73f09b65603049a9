"""Schedules as columns: one numpy array a field, so that a model scores 10^5 of them at once.

In: schedules, or a field table. Out: arrays by field name, and schedules by row. It must not know
problems, devices or models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from jaxpipe.errors import ScheduleError
from jaxpipe.schedule import GpuSchedule, HostSchedule

S = TypeVar("S", GpuSchedule, HostSchedule)
Column = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleTable(Generic[S]):
    """`size` schedules of one kind; every field is a column of that length.

    Whole numbers are int64 columns, flags are bool columns, words are unicode columns. A field
    that is the same in every row may be a broadcast view: columns are read-only.
    """

    kind: type[S]
    size: int
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, field: str) -> Column:
        """The column of `field` (read-only)."""
        return self.columns[field]

    def schedule(self, row: int) -> S:
        """The schedule in `row`, as Python values."""
        return self.kind(**{name: column[row].item() for name, column in self.columns.items()})

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> ScheduleTable[S]:
        """The table of the chosen rows, in that order (indices, mask or slice)."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        size = len(next(iter(columns.values())))
        return ScheduleTable(self.kind, size, columns)

    def schedules(self) -> list[S]:
        """Every row as a schedule (Python objects: for short tables)."""
        return [self.schedule(row) for row in range(self.size)]


def table_of(schedules: Sequence[S]) -> ScheduleTable[S]:
    """The table of these schedules; ScheduleError when there are none or the kinds differ."""
    if not schedules:
        raise ScheduleError("an empty list of schedules has no kind: give at least one")
    kind = type(schedules[0])
    if any(type(s) is not kind for s in schedules):
        raise ScheduleError(f"a table holds one kind of schedule: the first is {kind.__name__}")
    columns = {
        f.name: np.array([getattr(s, f.name) for s in schedules])
        for f in fields(kind)  # one kind: same fields
    }
    return ScheduleTable(kind, len(schedules), columns)


def as_table(schedules: Sequence[S] | ScheduleTable[S]) -> ScheduleTable[S]:
    """`schedules` as a table, whichever of the two it is."""
    return schedules if isinstance(schedules, ScheduleTable) else table_of(schedules)


def product_table(kind: type[S], knobs: Mapping[str, Iterable[Any]]) -> ScheduleTable[S]:
    """Every combination of the knobs' values; fields without a knob keep their default.

    The last knob varies fastest, as in nested loops. Raises ScheduleError for unknown knobs.
    """
    names = {f.name for f in fields(kind)}
    if unknown := sorted(set(knobs) - names):
        raise ScheduleError(f"{kind.__name__} has no field {', '.join(unknown)}")
    values = {name: np.array(list(choices)) for name, choices in knobs.items()}
    grids = np.meshgrid(*(np.arange(len(v)) for v in values.values()), indexing="ij")
    columns: dict[str, Column] = {
        name: choices[grid.ravel()]
        for (name, choices), grid in zip(values.items(), grids, strict=True)
    }
    return filled(kind, columns)


def filled(kind: type[S], columns: Mapping[str, Column]) -> ScheduleTable[S]:
    """The table of `columns`, each missing field at its default (a broadcast view)."""
    size = len(next(iter(columns.values())))
    default = kind()
    complete: dict[str, Column] = {}
    for f in fields(kind):
        column = columns.get(f.name)
        if column is None:
            column = np.broadcast_to(np.array(getattr(default, f.name)), (size,))
        complete[f.name] = column
    return ScheduleTable(kind, size, complete)


def concatenate(tables: Sequence[ScheduleTable[S]]) -> ScheduleTable[S]:
    """The rows of all tables, in order; ScheduleError without any table."""
    if not tables:
        raise ScheduleError("no tables to concatenate: give at least one")
    names = tables[0].columns
    columns = {name: np.concatenate([t[name] for t in tables]) for name in names}
    return ScheduleTable(tables[0].kind, sum(map(len, tables)), columns)


def distinct(table: ScheduleTable[S]) -> ScheduleTable[S]:
    """`table` without repeated rows; the first of each stays, in order."""
    first, _ = groups_of(list(table.columns.values()))
    return table.take(np.sort(first))


def groups_of(columns: Sequence[Column]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that are equal in all `columns`: the first row of each group, and every row's group."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        key = key * len(values) + code
        _, key = np.unique(key, return_inverse=True)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group
