"""Optuna ledgers by URL: memory, a journal file, SQLite, PostgreSQL.

In: a URL. Out: an Optuna storage, and calls that outlive a database's restart. The truth of tuning
is ledger.py; these hold what the dashboard shows and what several processes share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import optuna
import sqlalchemy
from optuna.storages import BaseStorage

from jaxpipe.errors import TuningError

T = TypeVar("T")
RETRY_S = 60.0
"""How long a database may be away (it restarts, it recovers from a crash)."""


def is_shared(url: str) -> bool:
    """True for databases that processes on several machines can use at once."""
    return url.startswith(("postgresql", "mysql", "sqlite"))


def open_storage(url: str) -> BaseStorage | None:
    """The storage at `url`; None (memory) for "".

    "*.log" or "journal:PATH" is a journal file; "sqlite:///PATH" and "postgresql://..." are
    databases. TuningError for anything else, and when the database cannot be reached.
    """
    if not url:
        return None
    if url.startswith("journal:") or (url.endswith(".log") and "://" not in url):
        path = url.removeprefix("journal:")
        backend = optuna.storages.journal.JournalFileBackend(path)
        return optuna.storages.JournalStorage(backend)
    if not is_shared(url):
        raise TuningError(
            f"storage {url!r}: use a journal file (tuning.log), sqlite:///PATH or postgresql://..."
        )
    try:
        return optuna.storages.RDBStorage(driver_url(url), engine_kwargs=_engine(url))
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise TuningError(f"cannot open storage {_hidden(url)}: {_first_line(error)}") from error


def driver_url(url: str) -> str:
    """`url` with the driver that jaxpipe installs: psycopg 3 for PostgreSQL."""
    if url.startswith("postgresql://"):
        return url.replace("postgresql://", "postgresql+psycopg://", 1)
    return url


def _engine(url: str) -> dict[str, Any]:
    """A connection that died with its server is noticed and replaced before it is used."""
    return (
        {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    )


def create_engine(url: str) -> sqlalchemy.Engine:
    """An engine of our own on the same database."""
    return sqlalchemy.create_engine(driver_url(url), **_engine(url))


def patiently(call: Callable[[], T], limit_s: float = RETRY_S) -> T:
    """`call()`, again while the database is away, at most `limit_s`; then TuningError.

    The call must be safe to repeat: it may have succeeded without our hearing of it.
    """
    deadline, pause = time.monotonic() + limit_s, 0.05
    while True:
        try:
            return call()
        except (
            sqlalchemy.exc.OperationalError,
            sqlalchemy.exc.InterfaceError,
            sqlalchemy.exc.PendingRollbackError,
            optuna.exceptions.StorageInternalError,
        ) as error:
            if time.monotonic() > deadline:
                raise TuningError(
                    f"the database was away for {limit_s:g} s ({_first_line(error)}): start it and "
                    "run again; what was measured is in the ledger"
                ) from error
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _hidden(url: str) -> str:
    """The URL without its password."""
    return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
