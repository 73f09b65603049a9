"""Jobs in a database that many machines share: submitted, leased, finished, taken.

In: a database URL, Jobs. Out: Jobs for workers, Outcomes for the tuner. A worker holds a job by a
lease that it renews; when it dies the lease ends and the job goes to another, at most ATTEMPTS
times. Every call may be repeated when its answer was lost. It must not know how jobs are run.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from jaxpipe.records import Measurement
from jaxpipe.tune.job import Job, Outcome
from jaxpipe.tune.storage import create_engine

ATTEMPTS = 3
_METADATA = sa.MetaData()
JOBS = sa.Table(
    "jaxpipe_jobs",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("token", sa.String(200), unique=True, nullable=False),
    sa.Column("study", sa.String(512), index=True, nullable=False),
    sa.Column("executor", sa.String(16), nullable=False),
    sa.Column("device", sa.String(128), nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), index=True, nullable=False),  # waiting running done taken
    sa.Column("worker", sa.String(200), default=""),
    sa.Column("lease_until_s", sa.Float, default=0.0),
    sa.Column("attempts", sa.Integer, default=0),
    sa.Column("outcome", sa.Text),
)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job in a worker's hands."""

    id: int
    token: str
    job: Job


@dataclass(frozen=True, slots=True)
class Finished:
    """A row whose outcome the tuner has not confirmed yet."""

    id: int
    job: Job
    outcome: Outcome


class JobsTable:
    """The table at `url` (made where it is missing)."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)
        _METADATA.create_all(self._engine, checkfirst=True)

    def close(self) -> None:
        """Drop the connections."""
        self._engine.dispose()

    # ------------------------------------------------------------------ the tuner's side
    def submit(self, study: str, device: str, job: Job, token: str) -> None:
        """Queue `job`; a second call with the same token changes nothing."""
        row: dict[str, object] = {
            "token": token,
            "study": study,
            "executor": job.executor,
            "device": device,
            "payload": json.dumps(job.to_json()),
            "state": "waiting",
        }
        self._insert(row)

    def finished(self, study: str) -> list[Finished]:
        """Outcomes of `study` that were not confirmed, in the order of submission."""
        wanted = JOBS.select().where(JOBS.c.study == study, JOBS.c.state == "done")
        with self._engine.connect() as connection:
            rows = connection.execute(wanted.order_by(JOBS.c.id)).all()
        return [
            Finished(r.id, Job.from_json(json.loads(r.payload)), Outcome.loads(r.outcome))
            for r in rows
        ]

    def confirm(self, row: int) -> None:
        """The outcome in `row` is in the ledger: it need not be kept here."""
        with self._engine.begin() as connection:
            connection.execute(JOBS.update().where(JOBS.c.id == row).values(state="taken"))

    def withdraw(self, study: str) -> None:
        """Take back the jobs of `study` that nobody began."""
        with self._engine.begin() as connection:
            waiting = (JOBS.c.study == study) & (JOBS.c.state == "waiting")
            connection.execute(JOBS.delete().where(waiting))

    # ------------------------------------------------------------------ the worker's side
    def claim(self, worker: str, executor: str, device: str, lease_s: float) -> Lease | None:
        """The oldest job that waits, or whose worker let its lease end; None without any."""
        with self._engine.begin() as connection:
            now = _now_s(connection)
            free = (JOBS.c.state == "waiting") | (
                (JOBS.c.state == "running") & (JOBS.c.lease_until_s < now)
            )
            mine = (JOBS.c.executor == executor) & (JOBS.c.device == device)
            oldest = JOBS.select().where(mine & free).order_by(JOBS.c.id).limit(1)
            row = connection.execute(oldest.with_for_update(skip_locked=True)).first()
            if row is None:
                return None
            job = Job.from_json(json.loads(row.payload))
            if row.attempts >= ATTEMPTS:
                given_up = _given_up(job, row.attempts, row.worker).dumps()
                connection.execute(
                    JOBS.update().where(JOBS.c.id == row.id).values(state="done", outcome=given_up)
                )
                return None
            same = (JOBS.c.id == row.id) & (JOBS.c.attempts == row.attempts) & free
            taken = connection.execute(
                JOBS.update()
                .where(same)
                .values(
                    state="running",
                    worker=worker,
                    attempts=row.attempts + 1,
                    lease_until_s=now + lease_s,
                )
            )
        return Lease(row.id, row.token, job) if taken.rowcount == 1 else None

    def renew(self, lease: Lease, worker: str, lease_s: float) -> None:
        """Keep a job for another lease."""
        with self._engine.begin() as connection:
            until = _now_s(connection) + lease_s
            mine = (JOBS.c.id == lease.id) & (JOBS.c.worker == worker)
            running = mine & (JOBS.c.state == "running")
            connection.execute(JOBS.update().where(running).values(lease_until_s=until))

    def finish(self, row: int, token: str, outcome: Outcome) -> None:
        """Hand in an outcome. When another worker was faster it is kept as well, in its own row."""
        with self._engine.begin() as connection:
            found = connection.execute(JOBS.select().where(JOBS.c.id == row)).first()
            if found is None:
                return
            if found.state in ("waiting", "running"):
                connection.execute(
                    JOBS.update()
                    .where(JOBS.c.id == row)
                    .values(state="done", outcome=outcome.dumps(), worker=outcome.worker)
                )
                return
            if found.worker == outcome.worker:
                return
        again = {name: getattr(found, name) for name in ("study", "executor", "device", "payload")}
        extra = {"token": f"{token}/{outcome.worker}"[:200], "state": "done"}
        self._insert(again | extra | {"outcome": outcome.dumps(), "worker": outcome.worker})

    def _insert(self, row: dict[str, object]) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(JOBS.insert().values(**row))
        except sa.exc.IntegrityError:
            return  # the row is there: this is a repeated call


def new_token() -> str:
    """A name for one submission, to tell a repeated call from a second job."""
    return uuid.uuid4().hex


def _given_up(job: Job, attempts: int, worker: str) -> Outcome:
    reason = f"{attempts} workers were lost with it, the last was {worker}"
    failed: Sequence[Measurement] = [Measurement("crashed", reason=reason) for _ in job.schedules]
    return Outcome(job.number, tuple(failed), worker=worker)


def _now_s(connection: sa.Connection) -> float:
    """Seconds by the database's clock where it has one: workers' clocks need not agree."""
    if connection.dialect.name == "postgresql":
        return float(
            connection.execute(sa.text("select extract(epoch from clock_timestamp())")).scalar_one()
        )
    return time.time()
