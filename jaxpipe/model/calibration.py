"""Figures of this machine that were measured here, laid over the tables of target.py.

In: a JSON file of the cache directory, written by `python -m jaxpipe doctor --calibrate`
(runtime/calibrate.py measures). Out: devices with measured fields. A file that cannot be read is
no calibration, and is said. It must not know how anything is measured.
"""

from __future__ import annotations

import functools
import json
import pathlib
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from jaxpipe import files, settings
from jaxpipe.errors import RecordError
from jaxpipe.target import Device, HostDevice

D = TypeVar("D", bound=Device | HostDevice)

FORMAT = 1
# What may be measured; names, architectures and counts are facts.
GPU_FIELDS = frozenset({"dram_share", "l2_bps", "launch_s"})
HOST_FIELDS = frozenset({"clock_hz", "l1_bps", "l2_bps", "l3_bps", "dram_bps", "pair_share"})


def path() -> pathlib.Path:
    """Where calibrations are kept."""
    return settings.cache_dir() / "calibration.json"


def calibrated(device: D) -> D:
    """`device` with what was measured of it on this machine; itself without a calibration."""
    return lay_over(device, load().get(device.name, {}))


def lay_over(device: D, measured: Mapping[str, float]) -> D:
    """`device` with these fields; RecordError names those that cannot be measured."""
    if not measured:
        return device
    measurable = HOST_FIELDS if isinstance(device, HostDevice) else GPU_FIELDS
    unknown = sorted(set(measured) - measurable)
    if unknown:
        raise RecordError(
            f"calibration of {device.name} holds {', '.join(unknown)}: what can be measured is "
            f"{', '.join(sorted(measurable))}; run doctor --calibrate again"
        )
    known: dict[str, Any] = dict(measured)
    return replace(device, **known)


def load() -> dict[str, dict[str, float]]:
    """Measured fields by device name, read again only when the file changed."""
    where = path()
    try:
        status = where.stat()
    except OSError:  # none, or the directory is no directory: a cache is no promise
        return {}
    return _read(where, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=8)
def _read(where: pathlib.Path, changed_ns: int, size: int) -> dict[str, dict[str, float]]:
    try:
        return parse(where.read_text(), str(where))
    except (OSError, RecordError) as error:
        warnings.warn(f"{error}; going on without it", RuntimeWarning, stacklevel=4)
        return {}


def parse(text: str, where: str = "text") -> dict[str, dict[str, float]]:
    """The calibrations in `text`; RecordError names `where` and what is wrong."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}")
        return {
            str(name): {str(k): float(v) for k, v in row.items()}
            for name, row in document["devices"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{where} is no calibration ({error!r})") from error


def store(name: str, measured: Mapping[str, float]) -> pathlib.Path:
    """Add or replace the calibration of device `name`; gives the file's path."""
    where = path()
    devices = {**load(), name: dict(measured)}
    text = json.dumps({"format": FORMAT, "devices": devices}, indent=1, sort_keys=True)
    files.write_whole(where, f"{text}\n".encode())
    return where


assert {f.name for f in fields(Device)} >= GPU_FIELDS
assert {f.name for f in fields(HostDevice)} >= HOST_FIELDS
