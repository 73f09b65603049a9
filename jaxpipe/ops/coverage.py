"""Which executor every lowered site went to, and why XLA where it was XLA: the ledger.

A row is one product or convolution of one compiled program: rows are written when a program is
lowered, so a cached program writes none and a loop body writes one. The ledger is the one mutable
thing in ops/; nothing that is computed depends on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Site:
    """One kind of lowered site: `reason` is "" unless XLA took what jaxpipe could not."""

    op: str
    problem: str
    implementation: str
    schedule: str = ""
    source: str = ""
    reason: str = ""


@dataclass(slots=True, eq=False)
class Coverage:
    """Counted sites: `taken` of `total` run on jaxpipe, `left` says why the others do not.

    As a context manager it starts at zero and counts what is lowered inside the block, by any
    thread; otherwise it is a copy of the process's count.
    """

    counts: Counter[Site] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Sites lowered."""
        return sum(self.counts.values())

    @property
    def taken(self) -> int:
        """Sites that a kernel of jaxpipe serves."""
        return self.total - sum(self.left.values())

    @property
    def left(self) -> dict[str, int]:
        """Sites that went to XLA, counted by reason."""
        found: Counter[str] = Counter()
        for site, n in self.counts.items():
            if site.implementation == "xla":
                found[site.reason] += n
        return dict(found)

    @property
    def fraction(self) -> float:
        """taken / total; 1.0 when nothing was lowered."""
        return self.taken / self.total if self.total else 1.0

    def rows(self) -> list[tuple[Site, int]]:
        """Every kind of site with its count, most frequent first."""
        return sorted(self.counts.items(), key=lambda row: (-row[1], row[0].problem))

    def __str__(self) -> str:
        head = f"{self.taken} of {self.total} sites run on jaxpipe ({100 * self.fraction:.1f} %)"
        return "\n".join([head, *(_line(site, n) for site, n in self.rows())])

    def __enter__(self) -> Coverage:
        with _LOCK:
            self.counts.clear()
            _OPEN.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        with _LOCK:
            _OPEN.remove(self)


def _line(site: Site, n: int) -> str:
    tail = f" [{site.schedule}]" if site.schedule else ""
    tail += f" <- {site.source}" if site.source else ""
    tail += f": {site.reason}" if site.reason else ""
    return f"{n:5d} x {site.implementation:9s} {site.problem}{tail}"


_LOCK = threading.Lock()
_TOTAL = Coverage()
_OPEN: list[Coverage] = []


def record(site: Site) -> None:
    """Count one lowered site, for the process and for every open block."""
    with _LOCK:
        for ledger in (_TOTAL, *_OPEN):
            ledger.counts[site] += 1


def coverage() -> Coverage:
    """What was lowered since the process started; `with jaxpipe.coverage() as c:` counts a block.

    Compiled programs are not lowered again: a second call of a jitted function adds nothing.
    """
    with _LOCK:
        return Coverage(Counter(_TOTAL.counts))
