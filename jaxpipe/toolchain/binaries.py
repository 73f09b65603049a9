"""What a CUDA compiler hands back, and how its log is read.

In: the text that ptxas prints under `-v`. Out: registers, spills and shared bytes per entry, and
the diagnostics that mean a slow or serialised kernel. It must not know which compiler ran.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jaxpipe.kernel import Resources


@dataclass(frozen=True, slots=True)
class Binaries:
    """One compilation: PTX text, cubin, resources per entry, log, compiler with version."""

    ptx: str
    cubin: bytes
    resources: tuple[Resources, ...]
    log: str
    compiler: str


_ENTRY = re.compile(r"Compiling entry function '(?P<name>\w+)'")
_SPILL = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")
_DIAGNOSTIC = re.compile(r"\(C7\d{3}\)|error|warning|wgmma.*serializ", re.IGNORECASE)


def parse_log(log: str) -> tuple[Resources, ...]:
    """Resources of every entry that a ptxas `-v` log mentions, sorted by entry name.

    Diagnostics are the log's lines that carry a C7xxx code, a warning or an error; ptxas prints
    some of them before it names an entry, so every entry carries them all.
    """
    entries: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    diagnostics = tuple(line.strip() for line in log.splitlines() if _DIAGNOSTIC.search(line))
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            current = entries.setdefault(found["name"], {})
        if current is None:
            continue
        if found := _SPILL.search(line):
            current |= {"stores": int(found["stores"]), "loads": int(found["loads"])}
        if found := _USED.search(line):
            current["registers"] = int(found["registers"])
            shared = _SHARED.search(line)
            current["shared"] = int(shared["bytes"]) if shared else 0
    return tuple(
        Resources(
            entry=name,
            registers=values.get("registers", 0),
            spill_store_bytes=values.get("stores", 0),
            spill_load_bytes=values.get("loads", 0),
            shared_bytes=values.get("shared", 0),
            diagnostics=diagnostics,
        )
        for name, values in sorted(entries.items())
    )
