"""The one measuring function of tuner and benchmarks: candidates of a problem, timed against XLA.

In: a Problem, an executor, and schedules or functions. Out: a Measurement for each, in order: a
candidate that cannot be built, that fails or that is wrong is a status, never an exception. How
time is taken stands in timing.py, how results are judged in reference.py. It must not know how
schedules are chosen or where measurements are kept.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxpipe.dtypes import DTYPES
from jaxpipe.kernel import BufferRole
from jaxpipe.problem import Problem
from jaxpipe.records import Measurement
from jaxpipe.runtime import device, execute, load, reference
from jaxpipe.runtime.timing import DEFAULT_PLAN, Bench, Plan
from jaxpipe.schedule import Schedule

Executor = Literal["host", "cuda", "interpret"]
Function = Callable[[Mapping[BufferRole, jax.Array]], tuple[jax.Array, ...]]
BASELINE = "xla"
_COUNT = itertools.count()
SAMPLED = 64
"""Rows and columns of the first result that are compared with float64."""


def measure(
    problem: Problem,
    candidates: Sequence[Schedule | Function],
    *,
    executor: Executor = "host",
    arch: str = "",
    baseline: bool = True,
    plan: Plan = DEFAULT_PLAN,
) -> tuple[Measurement, ...]:
    """Measure `candidates` on the default device; one Measurement each, in order.

    A candidate is a schedule, which `executor` runs (on `arch`; "" is the device's own), or a
    function of operands by role that gives `(y,)` or `(y, preactivation)`. With `baseline` XLA's
    own program of the problem takes part in every block and its samples are in `baseline_s`.
    """
    functions = {
        name: _function(problem, candidate, executor, arch)
        for name, candidate in zip(_names(candidates, executor, arch), candidates, strict=True)
    }
    plain = reference.xla_function(problem, exact=False)
    baselines = {BASELINE: lambda operands: plain(**operands)} if baseline else {}
    measured = _bench(problem, executor, plan).measure(functions, baselines)
    return tuple(measured[name] for name in functions)


def _names(candidates: Sequence[Schedule | Function], executor: Executor, arch: str) -> list[str]:
    """A schedule's name is the same in every call, so that its program is compiled once and its
    bits are compared with those of earlier rounds; a function's is new, and so is that of a
    schedule that stands twice in one call."""
    names: list[str] = []
    for candidate in candidates:
        name = f"{executor} {arch} {candidate}"
        is_new = not callable(candidate) and name not in names
        names.append(name if is_new else f"candidate {next(_COUNT)}")
    return names


@functools.lru_cache(maxsize=1)
def _bench(problem: Problem, executor: Executor, plan: Plan) -> Bench:
    """Operands, references and buffers of the problem that is being tuned."""
    groups = operand_groups(problem, executor, plan)
    check = Check(problem, groups[0])
    return Bench(groups, check.outputs, check, plan)


def operand_groups(
    problem: Problem, executor: Executor, plan: Plan
) -> list[list[dict[BufferRole, jax.Array]]]:
    """Operand sets that together exceed the cache: all of one program on a GPU, else one each.

    XLA's CPU runtime may run independent calls of one program side by side, so a host program
    holds one call.
    """
    rotate = plan.rotate_bytes or 2 * _cache_bytes(executor)
    count = min(plan.max_sets, 1 + math.ceil(rotate / max(problem.bytes_min, 1)))
    sets = [reference.random_operands(problem, plan.seed + i) for i in range(count)]
    return [sets] if executor == "cuda" else [[operands] for operands in sets]


def _cache_bytes(executor: Executor) -> int:
    """What operands must exceed so that none is found in cache: the GPU's L2, or the CPU's last."""
    if executor == "cuda":
        return device.resolve(()).l2_bytes
    return load.last_level_cache_bytes()


def _function(
    problem: Problem, candidate: Schedule | Function, executor: Executor, arch: str
) -> Function:
    if callable(candidate):
        return candidate
    schedule: Schedule = candidate
    return lambda operands: execute.run(problem, schedule, operands, executor=executor, arch=arch)


class Check:
    """Largest error of a program's results relative to the problem's tolerance.

    Every element is compared with XLA's exact formulation, a sample of the first set with float64
    by numpy; our own candidates must also repeat their bits. The baseline rounds after every
    operation, as users write it: it is allowed eight times the tolerance.
    """

    def __init__(self, problem: Problem, group: Sequence[Mapping[BufferRole, jax.Array]]) -> None:
        self._problem = problem
        self._limit = max(reference.tolerance(problem), 1e-12)
        function = reference.xla_function(problem, exact=True)
        exact = jax.jit(lambda operands: function(**operands))
        self._exact = [exact(operands) for operands in group]
        self.outputs = jax.eval_shape(exact, group[0])
        self._first = group[0]
        self._digests: dict[str, list[int]] = {}

    def __call__(self, name: str, results: Sequence[tuple[jax.Array, ...]]) -> float:
        sampled = reference.sampled_error(self._problem, self._first, results[0], SAMPLED)
        errors = [sampled * self._limit]
        for got, wanted in zip(results, self._exact, strict=True):
            errors += [float(_error(g, w)) for g, w in zip(got, wanted, strict=True)]
        digests = [int(_digest(y)) for got in results for y in got]
        error = float(np.max(np.array(errors))) / self._limit
        if name == BASELINE:
            return error / 8
        return error if self._digests.setdefault(name, digests) == digests else math.inf


@jax.jit  # type: ignore[untyped-decorator]
def _error(got: jax.Array, wanted: jax.Array) -> jax.Array:
    wide = jnp.float32 if DTYPES[str(got.dtype)].is_float else jnp.int32
    got, wanted = got.astype(wide), wanted.astype(wide)
    scale = jnp.maximum(1, jnp.abs(wanted))
    return jnp.max(jnp.abs(got - wanted) / scale, initial=0.0)


@jax.jit  # type: ignore[untyped-decorator]
def _digest(y: jax.Array) -> jax.Array:
    """Sum of the bits with odd weights, modulo 2**32: equal bits give equal digests."""
    bits: Any = jax.lax.bitcast_convert_type(y, jnp.dtype(f"uint{8 * y.dtype.itemsize}"))
    flat = bits.astype(jnp.uint32).reshape(-1)
    return jnp.sum(flat * (2 * jnp.arange(flat.size, dtype=jnp.uint32) + 1), dtype=jnp.uint32)
