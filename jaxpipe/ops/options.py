"""How calls are to be served: an `Options` record, and the context that jit caches split on.

In: keywords of one call, the surrounding `options(...)`, JAXPIPE_* settings, in this order of
precedence. Out: one frozen record that travels in the parameters of our primitives. It must not
know problems or executors.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

import jax

from jaxpipe import settings
from jaxpipe.errors import SettingError
from jaxpipe.runtime import device
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule
from jaxpipe.tuned import Table

Implementation = Literal["cuda", "host", "interpret", "xla"]
IMPLEMENTATIONS: tuple[str, ...] = get_args(Implementation)


@dataclass(frozen=True, slots=True)
class Records:
    """A table of tuned records as part of a key: equal content is equal, whatever its file."""

    digest: str
    table: Table = field(compare=False)

    @classmethod
    def of(cls, given: Table | str | os.PathLike[str]) -> Records:
        """`given`, or what the file at that path holds now; RecordError when it holds none."""
        table = given if isinstance(given, Table) else Table.load(given)
        return cls(hashlib.sha256(table.dumps().encode()).hexdigest()[:16], table)

    def __repr__(self) -> str:
        return f"{len(self.table)} records {self.digest}"


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may fix; None leaves the choice to jaxpipe.

    implementation: the executor. target: the device or architecture that kernels are made for
    when none is visible ("h200", "sm_80"). tuned: records that come before all others. schedule:
    the schedule of every problem that admits it. pack_constants: `dot` prepacks weights that a
    traced function closes over.
    """

    implementation: Implementation | None = None
    target: str | None = None
    tuned: Records | None = None
    schedule: Schedule | None = None
    pack_constants: bool | None = None

    def __post_init__(self) -> None:
        check_implementation(self.implementation)
        if self.target is not None:
            device.named(self.target)
        if not isinstance(self.schedule, GpuSchedule | HostSchedule | None):
            raise SettingError(f"schedule={self.schedule!r}: use a GpuSchedule or a HostSchedule")
        if self.pack_constants not in (None, True, False):
            raise SettingError(f"pack_constants={self.pack_constants!r}: use True or False")

    def __repr__(self) -> str:
        set_ = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name)]
        return f"Options({', '.join(set_)})"


def check_implementation(name: str | None) -> None:
    """Raise SettingError when `name` is no implementation."""
    if name is not None and name not in IMPLEMENTATIONS:
        raise SettingError(
            f"implementation={name!r} does not exist: use one of {', '.join(IMPLEMENTATIONS)}, "
            "or None for the best that applies"
        )


# A user context is part of the key of every jit cache, so a change of options retraces.
_CONTEXT = jax.make_user_context(Options())


@contextmanager
def options(
    *,
    implementation: Implementation | None = None,
    target: str | None = None,
    tuned: Table | str | os.PathLike[str] | None = None,
    schedule: Schedule | None = None,
    pack_constants: bool | None = None,
) -> Iterator[Options]:
    """Options of every jaxpipe call inside the `with` block; nested blocks add to outer ones.

    implementation: "cuda", "host", "interpret" or "xla". target: what kernels are made for when
    no GPU is visible ("h200", "sm_80"). tuned: a table of tuned records, or the path of its file,
    read on entry; it comes before the user's and the shipped one. schedule: for every problem that
    admits it. pack_constants: weights that a traced function closes over are packed once for the
    CPU's kernels (`prepack`) and kept up to JAXPIPE_PACKED_MB.

    Functions that were jitted outside are traced anew inside, and the other way round; tables with
    the same content share what was compiled. Raises SettingError or TargetError for what does not
    exist, RecordError for a file that holds no records.

        with jaxpipe.options(implementation="interpret", target="h200"):
            y = model(x)
    """
    records = None if tuned is None else Records.of(tuned)
    given = Options(implementation, target, records, schedule, pack_constants)
    merged = replace(_CONTEXT.value, **_set_fields(given))
    with _CONTEXT(merged):
        yield merged


def current(implementation: str | None = None) -> Options:
    """The options of a call that itself asks for `implementation` (None: does not say)."""
    check_implementation(implementation)
    context: Options = _CONTEXT.value
    chosen: Any = implementation or context.implementation or settings.get("JAXPIPE_IMPLEMENTATION")
    return replace(context, implementation=chosen or None)


def _set_fields(given: Options) -> dict[str, object]:
    named = {f.name: getattr(given, f.name) for f in fields(given)}
    return {name: value for name, value in named.items() if value is not None}
