"""Compare one function built on jaxpipe with the same function built on XLA: results, then times.

Time is taken as everywhere in this project (jaxpipe/runtime/timing.py): results over poisoned
buffers, both sides in every block, quiet rounds. A row holds every sample, versions and machine.
"""

from __future__ import annotations

import dataclasses
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxpipe
from jaxpipe.records import Measurement
from jaxpipe.runtime.timing import Bench, Plan

OURS, XLA = "jaxpipe", "xla"
BLOCKS_A_SLICE = 3


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
    failure: str
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
        word = "agree" if self.agrees else f"DISAGREE {self.failure}"
        lines = [
            f"{self.name} on {self.device}",
            f"  results {word}: cosine >= {self.cosine_min:.7f}, error {self.max_abs_error:.2e}",
            f"  products taken by jaxpipe: {self.taken} of {self.expected_products}"
            + "".join(f"; {n} left to XLA ({why})" for why, n in self.left_to_xla.items()),
        ]
        if self.ours_s and self.xla_s:
            lines += [
                f"  xla      {_spread(self.xla_s)}",
                f"  jaxpipe  {_spread(self.ours_s)}   {self.ratio:.2f}x",
            ]
        return "\n".join(lines)


def compare(case: Case, blocks: int) -> Outcome:
    """Run both sides of `case`, check them against each other and time them interleaved."""

    def ours(arguments: tuple[Any, ...]) -> jax.Array:
        with jaxpipe.options(implementation=case.implementation):
            return case.ours(*arguments)

    def xla(arguments: tuple[Any, ...]) -> jax.Array:
        return case.xla(*arguments)

    check = _Check(jax.jit(xla)(case.arguments), case.tolerance)
    bench = Bench([[case.arguments]], jax.eval_shape(xla, case.arguments), check, Plan(1))
    with jaxpipe.coverage() as coverage:
        jax.jit(ours).lower(case.arguments)
    measured = _measure(bench, {OURS: ours}, {XLA: xla}, blocks, case.name)
    return Outcome(
        name=case.name,
        dtype=case.dtype,
        device=describe_device(),
        agrees=measured[OURS].status == "ok" and coverage.taken == case.expected_products,
        failure=measured[OURS].reason,
        cosine_min=check.cosine,
        max_abs_error=check.error,
        taken=coverage.taken,
        expected_products=case.expected_products,
        left_to_xla=dict(coverage.left),
        ours_s=measured[OURS].samples_s,
        xla_s=measured[XLA].samples_s,
        versions=versions(),
    )


class _Check:
    """Cosine of each vector with XLA's, relative to the bound; remembers the worst."""

    def __init__(self, wanted: jax.Array, tolerance: Tolerance) -> None:
        self._wanted, self._tolerance = np.asarray(wanted, np.float64), tolerance
        self.cosine, self.error = 1.0, 0.0

    def __call__(self, name: str, results: Sequence[jax.Array]) -> float:
        got = np.asarray(results[0].astype(jnp.float32), np.float64)
        cosine = float(np.min(_cosine(got, self._wanted)))
        if name == OURS:
            self.cosine = float(np.minimum(self.cosine, cosine))
            self.error = float(np.maximum(self.error, np.abs(got - self._wanted).max()))
        return (1.0 - cosine) / (1.0 - self._tolerance.cosine)


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def _measure(
    bench: Bench,
    functions: dict[str, Callable[..., Any]],
    baselines: dict[str, Callable[..., Any]],
    blocks: int,
    name: str,
) -> dict[str, Measurement]:
    """`bench.measure` in slices, so that a progress bar can show how far it is."""
    slices = -(-blocks // BLOCKS_A_SLICE)
    bench.plan = dataclasses.replace(bench.plan, blocks=BLOCKS_A_SLICE)
    total: dict[str, Measurement] = {}
    for _ in tqdm(range(slices), desc=name, leave=False, disable=None):
        for side, part in bench.measure(functions, baselines).items():
            before = total.get(side)
            samples = (before.samples_s if before else ()) + part.samples_s
            total[side] = dataclasses.replace(part, samples_s=samples)
            if part.status != "ok":
                return total
    return total


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
