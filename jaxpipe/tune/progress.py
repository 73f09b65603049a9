"""One line of progress: trials, best so far, its ratio to XLA, time left.

In: events of a study. Out: text on a stream; a terminal sees one line that changes, a log sees a
line now and then. It must not know how anything is measured.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

EVERY_S = 10.0


@dataclass
class Progress:
    """Prints what happens. trials, seconds: the budget (seconds 0: no limit)."""

    trials: int
    seconds: float = 0.0
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _start: float = field(default_factory=time.monotonic)
    _printed: float = -1e9
    _width: int = 0

    def elapsed_s(self) -> float:
        """Seconds since creation."""
        return time.monotonic() - self._start

    def update(self, done: int, best_s: float, speedup: float, schedule: str) -> None:
        """Say where the study stands after `done` trials of this run."""
        is_terminal = self.stream.isatty()
        if not is_terminal and time.monotonic() - self._printed < EVERY_S and done < self.trials:
            return
        self._printed = time.monotonic()
        best = "no candidate worked yet"
        if best_s < float("inf"):
            ratio = f", {speedup:.2f}x XLA" if speedup else ""
            best = f"best {duration(best_s)}{ratio}"
        line = f"[{done}/{self.trials}] {best}, {self._left(done)} | {schedule}"
        if is_terminal:
            shown = line[:110].ljust(self._width)
            self._width = len(shown)
            print(f"\r{shown}", end="", file=self.stream, flush=True)
        else:
            print(line, file=self.stream, flush=True)

    def say(self, line: str) -> None:
        """A line of its own."""
        start = "\n" if self._width else ""
        self._width = 0
        print(f"{start}{line}", file=self.stream, flush=True)

    def _left(self, done: int) -> str:
        pace = self.elapsed_s() / max(done, 1)
        left = pace * (self.trials - done)
        if self.seconds:
            left = min(left, self.seconds - self.elapsed_s())
        return f"{max(left, 0):.0f} s left"


def duration(seconds: float) -> str:
    """Three digits with the unit that suits: 1.23 ms."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
