"""The truth of all tuning: an append-only file of records, one JSON line each, losers kept.

In: records. Out: records. A line is appended under a lock and is on disk when `append` returns;
what a crash tore off is skipped by readers and fenced off by the next writer. It must not know
Optuna: studies are views of this file, and can be made anew from it.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from jaxpipe import settings
from jaxpipe.errors import RecordError
from jaxpipe.records import Record
from jaxpipe.tuned import file_name


def default_path(device: str) -> pathlib.Path:
    """Where every measurement on `device` by this user is kept."""
    return settings.cache_dir() / "measured" / f"{file_name(device)}.jsonl"


@dataclass(frozen=True, slots=True)
class Ledger:
    """One file of records. Several processes may append at once."""

    path: pathlib.Path

    def append(self, records: Iterable[Record]) -> None:
        """Add `records`; they are on disk when this returns."""
        text = "".join(record.to_json() + "\n" for record in records)
        if not text:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            fence = b"" if _ends_with_newline(stream.fileno()) else b"\n"
            stream.write(fence + text.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def read(self) -> list[Record]:
        """Every whole record in order of arrival; torn or foreign lines are skipped and counted."""
        if not self.path.exists():
            return []
        records, bad = [], 0
        for line in self.path.read_text(errors="replace").splitlines():
            try:
                records += [Record.from_json(line)] if line.strip() else []
            except RecordError:
                bad += 1
        if bad:
            warnings.warn(f"{self.path}: skipped {bad} lines that are no records", stacklevel=2)
        return records


def _ends_with_newline(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"
