"""How busy other processes keep this machine, and how large its last-level cache is.

In: Linux's /proc and /sys. Out: numbers; 0.0 where a system does not tell. It must not know JAX.
"""

from __future__ import annotations

import functools
import os
import pathlib
import time

_DEFAULT_CACHE_BYTES = 32 << 20
# Fields of /proc/stat's first line that are not idle: user nice system . . irq softirq steal.
_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)


class ForeignLoad:
    """Measures from its creation on: cores kept busy by anybody but this process."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._others_s = _busy_s() - time.process_time()

    def cores(self) -> float:
        """Mean number of cores that others kept busy since creation; 0.0 where unknown."""
        elapsed = time.perf_counter() - self._start
        return max(0.0, _busy_s() - time.process_time() - self._others_s) / max(elapsed, 1e-9)


def last_level_cache_bytes() -> int:
    """Size of the largest cache of CPU 0; 32 MiB where the system does not tell."""
    return _last_level_cache_bytes(pathlib.Path("/sys/devices/system/cpu/cpu0/cache"))


@functools.cache
def _last_level_cache_bytes(folder: pathlib.Path) -> int:
    sizes = [_size(path) for path in folder.glob("index*/size")]
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def _size(path: pathlib.Path) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    text = path.read_text().strip()
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def _busy_s() -> float:
    try:
        words = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return time.process_time()
    ticks = sum(int(words[field]) for field in _BUSY_FIELDS if field < len(words))
    return ticks / os.sysconf("SC_CLK_TCK")
