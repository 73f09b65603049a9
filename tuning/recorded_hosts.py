"""The CPUs of recorded/: what each was when its schedules were timed.

In: recorded/hosts.json, written by record_host.py. Out: host devices by name, and what people call
them. It must not know recordings.
"""

from __future__ import annotations

import json
import pathlib
from dataclasses import asdict
from typing import Any

from jaxpipe.target import HostDevice, host_device

PATH = pathlib.Path(__file__).parent / "recorded" / "hosts.json"


def load() -> dict[str, HostDevice]:
    """Every recorded host by name."""
    return {name: HostDevice(name, **_fields(row)) for name, row in _rows().items()}


def about(name: str) -> str:
    """What people call the host of that name; the name itself where it was not recorded."""
    return str(_rows().get(name, {}).get("about", name))


def named(name: str) -> HostDevice:
    """A recorded host, or this machine under its own name; SystemExit for others."""
    known = load()
    if name in known:
        return known[name]
    here = host_device()
    if here.name != name:
        raise SystemExit(f"records of {name}: known are {', '.join(known)}, this is {here.name}")
    return here


def keep(host: HostDevice, words: str) -> None:
    """Write `host` down as a recorded one that people call `words` ("": as before)."""
    row = {"about": words or about(host.name), **asdict(host)}
    rows = {**_rows(), row.pop("name"): row}
    PATH.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def _rows() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(PATH.read_text())
    return found


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "about"}
