"""Tuning on many machines: a crew that is a table of jobs, and the worker that serves it.

In: a database URL. Out: Outcomes for the tuner; a worker's loop. What a worker measured lies in its
spool directory until the database has it, so that the death of either loses nothing.
"""

from __future__ import annotations

import os
import pathlib
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxpipe import files
from jaxpipe.errors import RecordError, TuningError
from jaxpipe.tune.job import Crew, Executor, Job, Outcome
from jaxpipe.tune.jobs_table import JobsTable, Lease, new_token
from jaxpipe.tune.storage import is_shared, patiently

POLL_S = 0.1
LEASE_S = 30.0


class TableCrew:
    """Workers elsewhere. depth: jobs that are out at a time; about two a worker."""

    def __init__(self, url: str, study: str, device: str, depth: int = 4) -> None:
        if not is_shared(url):
            raise TuningError(
                f"workers need a storage that they share, got {url!r}: use "
                "postgresql://USER@HOST/DB (or sqlite:///PATH on one machine)"
            )
        self.depth = depth
        self._study, self._device = study, device
        self._table = patiently(lambda: JobsTable(url))
        patiently(lambda: self._table.withdraw(study))
        self._rows: dict[int, int] = {}
        self._out: set[int] = set()

    def submit(self, job: Job) -> None:
        """Put the job where workers find it."""
        token = new_token()
        patiently(lambda: self._table.submit(self._study, self._device, job, token))
        self._out.add(job.number)

    def collect(self) -> Outcome:
        """Wait for any job of this run to be finished by a worker."""
        while True:
            for done in patiently(lambda: self._table.finished(self._study)):
                if done.outcome.number in self._out:
                    self._out.discard(done.outcome.number)
                    self._rows[done.outcome.number] = done.id
                    return done.outcome
            time.sleep(POLL_S)

    def leftovers(self) -> list[tuple[Job, Outcome]]:
        """Outcomes that no tuner has taken: of a run that died, or of a job that ran twice."""
        found = patiently(lambda: self._table.finished(self._study))
        others = [done for done in found if done.outcome.number not in self._out]
        self._leftover_rows = [done.id for done in others]
        return [(done.job, done.outcome) for done in others]

    def confirm_leftovers(self) -> None:
        """What `leftovers` gave is in the ledger."""
        for row in self._leftover_rows:
            patiently(lambda row=row: self._table.confirm(row))  # type: ignore[misc]

    def confirm(self, outcome: Outcome) -> None:
        """The outcome is in the ledger."""
        row = self._rows.pop(outcome.number)
        patiently(lambda: self._table.confirm(row))

    def close(self) -> None:
        """Take back what nobody began."""
        patiently(lambda: self._table.withdraw(self._study))
        self._table.close()


@dataclass
class Worker:
    """Serves the jobs of one executor and device. spool: a directory of its own on this machine."""

    url: str
    executor: Executor
    device: str
    crew: Crew
    spool: pathlib.Path
    lease_s: float = LEASE_S
    say: Callable[[str], None] = print

    @property
    def name(self) -> str:
        """Machine and process."""
        return f"{platform.node()}:{os.getpid()}"

    def run(self, idle_s: float = 0.0) -> int:
        """Serve until nothing came for `idle_s` seconds (0: for ever); gives the jobs served."""
        table = patiently(lambda: JobsTable(self.url))
        self.spool.mkdir(parents=True, exist_ok=True)
        self._hand_in_spool(table)
        served, last = 0, time.monotonic()
        while not idle_s or time.monotonic() - last < idle_s:
            lease = patiently(
                lambda: table.claim(self.name, self.executor, self.device, self.lease_s)
            )
            if lease is None:
                time.sleep(POLL_S)
                continue
            self._serve(table, lease)
            served, last = served + 1, time.monotonic()
        return served

    def _serve(self, table: JobsTable, lease: Lease) -> None:
        with _Renewal(table, lease, self.name, self.lease_s):
            self.crew.submit(lease.job)
            outcome = replace(self.crew.collect(), worker=self.name)
        path = self.spool / f"{lease.id}-{lease.token}.json"
        files.write_whole(path, outcome.dumps().encode())
        self._hand_in(table, path)
        statuses = ", ".join(m.status for m in outcome.measurements)
        self.say(f"{self.name}: job {lease.id} ({lease.job.problem}): {statuses}")

    def _hand_in_spool(self, table: JobsTable) -> None:
        """What an earlier worker of this spool measured and could not hand in."""
        for path in sorted(self.spool.glob("*.json")):
            self._hand_in(table, path)

    def _hand_in(self, table: JobsTable, path: pathlib.Path) -> None:
        row, _, token = path.stem.partition("-")
        try:
            outcome = Outcome.loads(path.read_text())
        except RecordError as error:
            self.say(f"{path} is left alone: {error}")
            return
        patiently(lambda: table.finish(int(row), token, outcome))
        path.unlink()


class _Renewal:
    """Renews a lease from a thread while a job is measured."""

    def __init__(self, table: JobsTable, lease: Lease, worker: str, lease_s: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, args=(table, lease, worker, lease_s), daemon=True
        )

    def __enter__(self) -> _Renewal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self, table: JobsTable, lease: Lease, worker: str, lease_s: float) -> None:
        while not self._over.wait(lease_s / 3):
            try:
                table.renew(lease, worker, lease_s)
            except Exception:  # the database is away: the next renewal may reach it
                continue
