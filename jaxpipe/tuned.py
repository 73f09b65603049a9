"""Tuned records: shipped and user tables of winners, and how a problem finds its own.

In: JSON files of records, one line each. Out: tables that look up, merge (`|`) and save; layers of
tables (context manager, JAXPIPE_TUNED, the user's file, the shipped file) that answer a problem
with an exact record or those of the nearest shapes. Nothing here measures, and Optuna is not
needed. It must not know models, emitters or JAX.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import functools
import json
import math
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jaxpipe import files, settings
from jaxpipe.errors import RecordError
from jaxpipe.keys import problem_from_key
from jaxpipe.problem import Conv2d, Problem
from jaxpipe.records import Record

Executor = Literal["cuda", "host"]
Key = tuple[str, str, str]
FORMAT = 1
SHIPPED = pathlib.Path(__file__).parent / "data" / "tuned"
NEAREST_LIMIT = 3.0
"""Octaves of size (summed over batch, m, n and k) up to which a record may serve another shape."""


def key_of(record: Record) -> Key:
    """What a winner is filed under: (device, executor, problem)."""
    return record.device, record.executor, record.problem


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that answers a problem: octaves away in shape (0.0 is exact), and its layer."""

    record: Record
    octaves: float
    layer: str

    @property
    def is_exact(self) -> bool:
        """True when the record was measured on this very problem."""
        return self.octaves == 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """Winners, one a (device, executor, problem); immutable. `a | b` keeps the faster of each."""

    rows: Mapping[Key, Record] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Table:
        """The table of the fastest successful record of each key."""
        rows: dict[Key, Record] = {}
        for record in records:
            if record.measurement.status == "ok" and record.measurement.samples_s:
                rows[key_of(record)] = _faster(rows.get(key_of(record)), record)
        return cls(rows)

    @classmethod
    def loads(cls, text: str, where: str = "text") -> Table:
        """The table in `text`; RecordError names `where` and what is wrong."""
        try:
            document = json.loads(text)
            version, lines = document["format"], document["records"]
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{where} is no table of tuned records ({error!r})") from error
        if version != FORMAT:
            raise RecordError(
                f"{where} has format {version!r}, this jaxpipe reads {FORMAT}: "
                "export it again with the jaxpipe that wrote it"
            )
        return cls.of(Record.from_json(json.dumps(line)) for line in lines)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """The table in a file; RecordError when it cannot be read."""
        try:
            return cls.loads(pathlib.Path(path).read_text(), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"cannot read tuned records from {path}: {error}") from error

    def dumps(self) -> str:
        """JSON with one record a line, sorted, so that files diff and merge by line."""
        lines = ",\n".join(self.rows[key].to_json() for key in sorted(self.rows))
        return f'{{"format":{FORMAT},"records":[\n{lines}\n]}}\n'

    def __or__(self, other: Table) -> Table:
        return Table.of((*self.rows.values(), *other.rows.values()))

    def __len__(self) -> int:
        return len(self.rows)

    def hits(
        self, problem: Problem, executor: Executor, device: str, layer: str = "table"
    ) -> list[Hit]:
        """Records that can serve `problem`, the exact one first, then by distance in shape."""
        same = (
            record for (on, by, _), record in self.rows.items() if on == device and by == executor
        )
        near = ((octaves_between(problem, problem_from_key(r.problem)), r) for r in same)
        close = [(octaves, r) for octaves, r in near if octaves <= NEAREST_LIMIT]
        return [Hit(r, octaves, layer) for octaves, r in sorted(close, key=_by_distance)]

    def exact(self, problem: Problem, executor: Executor, device: str) -> Record | None:
        """The record of this very problem, or None."""
        return self.rows.get((device, executor, problem.key))


def _by_distance(pair: tuple[float, Record]) -> tuple[float, str]:
    return pair[0], pair[1].problem


def _faster(known: Record | None, new: Record) -> Record:
    """The faster of two; equal medians go to the smaller text, whatever the order of arrival."""
    if known is None:
        return new
    return min(known, new, key=lambda r: (r.measurement.median_s, r.to_json()))


def octaves_between(a: Problem, b: Problem) -> float:
    """How far two problems are apart: the sum of |log2| ratios of batch, m, n and k.

    0.0 for equal problems only, infinity for those whose schedules have nothing to say to each
    other (another kind, dtype, precision or operand layout). Another epilogue or leading dimension
    counts half an octave, an epilogue against none a whole one: sums are stored another way
    (benchmarks/results/shipped.jsonl: a winner of bare products that loses with an activation).
    """
    if a.key == b.key:
        return 0.0
    if _class(a) != _class(b) or a.is_empty or b.is_empty or 0 in (a.k, b.k):
        return math.inf
    sizes = ((p.batch_size, p.m, p.n, p.k) for p in (a, b))
    apart = sum(abs(math.log2(x) - math.log2(y)) for x, y in zip(*sizes, strict=True))
    is_bare = a.epilogue.is_identity, b.epilogue.is_identity
    return apart + 0.5 * (a.epilogue != b.epilogue) + 0.5 * (is_bare[0] != is_bare[1]) + 0.01


def _class(problem: Problem) -> tuple[object, ...]:
    """What two problems must share for a schedule to carry over."""
    shared = (problem.dtype, problem.out_dtype, problem.precision)
    if isinstance(problem, Conv2d):
        return ("conv2d", problem.kernel, problem.stride, problem.dilation, *shared)
    return ("matmul", problem.layout, *shared)


# ---------------------------------------------------------------------------------- files


def user_path(device: str) -> pathlib.Path:
    """Where this user's own winners for `device` are kept."""
    return settings.cache_dir() / "tuned" / f"{file_name(device)}.json"


def shipped_path(device: str) -> pathlib.Path:
    """Where the winners that come with jaxpipe lie (the file may not exist)."""
    return SHIPPED / f"{file_name(device)}.json"


def file_name(device: str) -> str:
    """`device` in letters that every file system takes."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in device.lower())


def update(path: str | os.PathLike[str], new: Table) -> Table:
    """Merge `new` into the file and return what it holds now.

    Safe against other writers (an exclusive lock on `<path>.lock` around read and replace) and
    against a crash at any moment (the old file stays until the new one is whole on disk). A file
    that cannot be read is kept aside as `<path>.broken` with a warning.
    """
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(target.name + ".lock")):
        merged = _read_or_set_aside(target) | new
        files.write_whole(target, merged.dumps().encode())
    return merged


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _read_or_set_aside(path: pathlib.Path) -> Table:
    if not path.exists():
        return Table()
    try:
        return Table.load(path)
    except RecordError as error:
        aside = path.with_name(path.name + ".broken")
        path.replace(aside)
        warnings.warn(f"{error}; it is kept as {aside}", RuntimeWarning, stacklevel=3)
        return Table()


@functools.lru_cache(maxsize=64)
def _cached(path: str, stamp: tuple[int, int]) -> Table:
    return Table.load(path)


def read(path: pathlib.Path) -> Table:
    """The table in `path`, read again only when it changed; no file is an empty table.

    RecordError when there may be one that cannot be reached.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Table()
    except OSError as error:
        raise RecordError(f"cannot read tuned records from {path}: {error}") from error
    return _cached(str(path), (status.st_mtime_ns, status.st_size))


# ---------------------------------------------------------------------------------- layers

_OVERLAYS: contextvars.ContextVar[tuple[Table, ...]] = contextvars.ContextVar(
    "overlays", default=()
)


@contextlib.contextmanager
def using(table: Table | str | os.PathLike[str]) -> Iterator[Table]:
    """Within `with`, records of `table` (or of the file at that path) come before all others.

    What JAX has compiled already stays: `jaxpipe.options(tuned=...)` is part of its cache's key.
    """
    overlay = table if isinstance(table, Table) else Table.load(table)
    token = _OVERLAYS.set((overlay, *_OVERLAYS.get()))
    try:
        yield overlay
    finally:
        _OVERLAYS.reset(token)


def layers(device: str, over: Table | None = None) -> tuple[tuple[str, Table], ...]:
    """The tables that answer for `device`, in order of precedence (`over` first), with names."""
    named = [] if over is None else [("options", over)]
    named += [("context", table) for table in _OVERLAYS.get()]
    extra = settings.get("JAXPIPE_TUNED")
    if extra:
        named.append((f"JAXPIPE_TUNED={extra}", Table.load(str(extra))))
    named.append(("user", _tolerant(user_path(device))))
    named.append(("shipped", read(shipped_path(device))))
    return tuple(named)


def _tolerant(path: pathlib.Path) -> Table:
    """The user's file is a cache: one that cannot be read is as good as none, but is said."""
    try:
        return read(path)
    except RecordError as error:
        warnings.warn(f"{error}; going on without it", RuntimeWarning, stacklevel=3)
        return Table()


def lookup(
    problem: Problem, executor: Executor, device: str, over: Table | None = None
) -> list[Hit]:
    """Every record that can serve `problem`: exact ones in the order of layers, then the nearest.

    The caller takes the first whose schedule is legal for the problem. Nearest records are hints
    for a model and for a tuner; they never pass for tuned by themselves.
    """
    found = [
        hit
        for name, table in layers(device, over)
        for hit in table.hits(problem, executor, device, name)
    ]
    return sorted(found, key=lambda hit: hit.octaves)


def describe_miss(
    problem: Problem, executor: Executor, device: str, over: Table | None = None
) -> str:
    """What was looked for, where, and what to do, for the error of an untuned problem."""
    tried = ", ".join(f"{name} ({len(table)} records)" for name, table in layers(device, over))
    return (
        f"no tuned record for {problem} on {device} by {executor}, and JAXPIPE_ON_MISS=error; "
        f"looked in {tried}: run `python -m jaxpipe tune`, or let the model choose with "
        "JAXPIPE_ON_MISS=model"
    )
