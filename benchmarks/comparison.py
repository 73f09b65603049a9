"""Compare one function built on jaxpipe with the same function built on XLA: results, then times.

The two sides run interleaved in one process, in an order that changes from round to round; the
first rounds are dropped. A result row holds every sample, the versions and the machine.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

import jaxpipe

WARM_UP_ROUNDS = 2


@dataclass(frozen=True)
class Tolerance:
    """What "agree" means for float32 vectors along the last axis."""

    cosine: float


@dataclass(frozen=True)
class Case:
    """One function, built twice, with its arguments."""

    name: str
    dtype: str
    ours: Callable[..., jax.Array]
    xla: Callable[..., jax.Array]
    arguments: tuple[Any, ...]
    tolerance: Tolerance
    expected_products: int
    implementation: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one comparison showed; times in seconds."""

    name: str
    dtype: str
    device: str
    agrees: bool
    cosine_min: float
    max_abs_error: float
    taken: int
    expected_products: int
    left_to_xla: dict[str, int]
    ours_s: tuple[float, ...]
    xla_s: tuple[float, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """XLA's median over ours: above 1 we are faster."""
        return statistics.median(self.xla_s) / statistics.median(self.ours_s)

    def text(self) -> str:
        """A few lines for people."""
        word = "agree" if self.agrees else "DISAGREE"
        lines = [
            f"{self.name} on {self.device}",
            f"  results {word}: cosine >= {self.cosine_min:.7f}, error {self.max_abs_error:.2e}",
            f"  products taken by jaxpipe: {self.taken} of {self.expected_products}"
            + "".join(f"; {n} left to XLA ({why})" for why, n in self.left_to_xla.items()),
            f"  xla      {_spread(self.xla_s)}",
            f"  jaxpipe  {_spread(self.ours_s)}   {self.ratio:.2f}x",
        ]
        return "\n".join(lines)


def compare(case: Case, rounds: int) -> Outcome:
    """Run both sides of `case`, check them against each other and time them interleaved."""
    with jaxpipe.options(implementation=case.implementation), jaxpipe.coverage() as coverage:
        ours = jax.jit(case.ours).lower(*case.arguments).compile()
    xla = jax.jit(case.xla).lower(*case.arguments).compile()
    got = np.asarray(ours(*case.arguments), np.float64)
    want = np.asarray(xla(*case.arguments), np.float64)
    cosine = float(_cosine(got, want).min())
    ours_s, xla_s = _interleave((ours, xla), case.arguments, rounds, case.name)
    taken = coverage.taken
    return Outcome(
        name=case.name,
        dtype=case.dtype,
        device=describe_device(),
        agrees=bool(cosine >= case.tolerance.cosine and taken == case.expected_products),
        cosine_min=cosine,
        max_abs_error=float(np.abs(got - want).max()),
        taken=taken,
        expected_products=case.expected_products,
        left_to_xla=dict(coverage.left),
        ours_s=ours_s,
        xla_s=xla_s,
        versions=versions(),
    )


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def _interleave(
    sides: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], rounds: int, name: str
) -> tuple[tuple[float, ...], ...]:
    """Seconds of each side, one a round; the order alternates, warm-up rounds are dropped."""
    samples: list[list[float]] = [[] for _ in sides]
    for i in tqdm(range(rounds + WARM_UP_ROUNDS), desc=name, leave=False, disable=None):
        order = range(len(sides)) if i % 2 else reversed(range(len(sides)))
        for side in order:
            start = time.perf_counter()
            jax.block_until_ready(sides[side](*arguments))
            elapsed = time.perf_counter() - start
            if i >= WARM_UP_ROUNDS:
                samples[side].append(elapsed)
    return tuple(tuple(s) for s in samples)


def _spread(samples: Sequence[float]) -> str:
    low, mid, high = statistics.quantiles(samples, n=4)
    return f"{mid * 1e3:8.2f} ms  [{low * 1e3:.2f}, {high * 1e3:.2f}]"


def describe_device() -> str:
    """The device that JAX's default backend runs on, in words."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "cpu"


def _cpuinfo() -> list[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return file.read().splitlines()
    except OSError:
        return []


def versions() -> dict[str, str]:
    """What a result depends on."""
    return {
        "jaxpipe": jaxpipe.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
