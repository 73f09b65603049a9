"""Times functions against each other: the method of every measurement in this project.

In: functions of one argument, groups of arguments, a check. Out: a Measurement for each; one that
cannot be built, that fails or that computes something else is a status with its reason, never an
exception. It must not know problems, schedules or executors.

Method. Arguments take turns, so that no call finds its operands in cache. Results are written over
donated NaN and compared before and after timing. The baseline and all candidates take turns in
every block, in shuffled order. A round during which other processes used the cores is measured
again. On a GPU one program holds several calls, so that they share the cost of its dispatch.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from jaxpipe.records import Measurement, Status
from jaxpipe.runtime.load import ForeignLoad

Function = Callable[[Any], Any]
Check = Callable[[str, Any], float]
"""Takes a function's name and its results on group 0; gives the largest error relative to its
limit (up to 1.0 passes; NaN does not)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; times in seconds, sizes in bytes.

    blocks: paired samples of every candidate. sample_s: least duration of a sample; programs are
    repeated to fill it. rotate_bytes: operand sets are added until they and their results exceed
    it (0: twice the last-level cache), at most max_sets. limit_s: a candidate whose program takes
    longer is a "timeout". A round with more than max_load foreign cores is repeated, at most twice.
    """

    blocks: int = 15
    sample_s: float = 0.01
    warmup_s: float = 0.05
    rotate_bytes: int = 0
    max_sets: int = 16
    limit_s: float = 10.0
    max_load: float = 0.1
    seed: int = 0


KEPT_PROGRAMS = 16
"""Programs that a Bench keeps for further rounds, the newest."""
DEFAULT_PLAN = Plan()
QUICK_PLAN = Plan(blocks=5, sample_s=0.002, warmup_s=0.0)


@dataclass(slots=True)
class _Candidate:
    """One function on its way: its program, repeats that fill a sample, what went wrong."""

    name: str
    program: Callable[[Any, Any], Any] | None = None
    repeats: int = 1
    samples_s: list[float] = field(default_factory=list)
    status: Status = "ok"
    reason: str = ""
    max_error: float = 0.0

    def fail(self, status: Status, reason: object) -> None:
        """Note the first failure; it ends this candidate and nothing else."""
        self.status, self.reason = status, str(reason)


class _Arena:
    """Argument groups and the result buffers that every candidate writes in turn.

    Buffers are donated to a program and come back as its results: timing allocates nothing.
    """

    def __init__(self, groups: Sequence[Sequence[Any]], outputs: Any) -> None:
        self.groups = groups
        self._outputs = [outputs] * len(groups[0])
        self._buffers = [self._poison() for _ in groups]
        self._turn = 0

    def run(self, candidate: _Candidate) -> Any:
        """Call the candidate's program on the next group; its results, not waited for."""
        assert candidate.program is not None
        turn = self._turn = (self._turn + 1) % len(self.groups)
        try:
            self._buffers[turn] = candidate.program(self._buffers[turn], self.groups[turn])
        except Exception:
            self._buffers[turn] = self._poison()
            raise
        return self._buffers[turn]

    def run_poisoned(self, candidate: _Candidate) -> Any:
        """Call it on group 0 with every element of the results poisoned before; waits."""
        self._turn = len(self.groups) - 1
        self._buffers[0] = self._poison()
        return jax.block_until_ready(self.run(candidate))

    def sample(self, candidate: _Candidate) -> float:
        """Seconds of one evaluation, over `candidate.repeats` programs."""
        start = time.perf_counter()
        for _ in range(candidate.repeats):
            results = self.run(candidate)
        jax.block_until_ready(results)
        elapsed = time.perf_counter() - start
        return elapsed / (candidate.repeats * len(self.groups[0]))

    def _poison(self) -> Any:
        return jax.block_until_ready(jax.tree.map(poison, self._outputs))


class Bench:
    """Groups of arguments with their check, ready to time functions of one argument.

    One program evaluates a function on every argument of a group; groups take turns. All
    functions must give results like `outputs` in structure, shapes and dtypes. The program of the
    baseline is compiled and checked once; its samples are taken anew with every `measure`. The
    last programs of the others are kept by name: a name means one function.
    """

    def __init__(
        self, groups: Sequence[Sequence[Any]], outputs: Any, check: Check, plan: Plan
    ) -> None:
        self.plan = plan
        self._arena = _Arena(groups, outputs)
        self._check = check
        self._baselines: dict[str, _Candidate] = {}
        self._programs: dict[str, Callable[[Any, Any], Any]] = {}

    def measure(
        self, functions: Mapping[str, Function], baselines: Mapping[str, Function]
    ) -> dict[str, Measurement]:
        """A Measurement for every function, by name, timed against each other in this process.

        baselines holds none or one function: its samples are the others' `baseline_s`, and what
        went wrong with it is their `reason`.
        """
        paired = [self._baseline(name, function) for name, function in baselines.items()]
        candidates = [self._candidate(name, f) for name, f in functions.items()]
        for candidate in candidates:
            _verify(candidate, self._arena, self._check, self.plan)
        running = [c for c in [*paired, *candidates] if c.status == "ok"]
        load = _measure_rounds(running, self._arena, self.plan)
        for candidate in candidates:
            _verify(candidate, self._arena, self._check, self.plan)
        pair = paired[0] if paired else _Candidate("")
        return {c.name: _measurement(c, pair, load) for c in [*candidates, *paired]}

    def _candidate(self, name: str, function: Function) -> _Candidate:
        if name in self._programs:
            return _Candidate(name, self._programs[name])
        candidate = _compile(name, function, self._arena)
        if candidate.program is not None:
            self._programs[name] = candidate.program
        for oldest in list(self._programs)[:-KEPT_PROGRAMS]:
            del self._programs[oldest]
        return candidate

    def _baseline(self, name: str, function: Function) -> _Candidate:
        if name not in self._baselines:
            self._baselines[name] = _compile(name, function, self._arena)
            _verify(self._baselines[name], self._arena, self._check, self.plan)
        return self._baselines[name]


def _compile(name: str, function: Function, arena: _Arena) -> _Candidate:
    """The candidate with its program: (donated result buffers, group) -> results."""
    candidate = _Candidate(name)

    def program(buffers: Any, group: Sequence[Any]) -> list[Any]:
        return [function(argument) for argument in group]

    try:
        jitted = jax.jit(program, donate_argnums=0, keep_unused=True)
        candidate.program = jitted.lower(arena._buffers[0], arena.groups[0]).compile()
    except Exception as error:
        candidate.fail("compile_failed", f"{type(error).__name__}: {error}")
    return candidate


def _verify(candidate: _Candidate, arena: _Arena, check: Check, plan: Plan) -> None:
    """Compare the results of a poisoned run, and set how many programs fill a sample."""
    if candidate.status != "ok":
        return
    try:
        error = check(candidate.name, arena.run_poisoned(candidate))
        candidate.repeats = 1
        elapsed = arena.sample(candidate) * len(arena.groups[0])
    except Exception as failure:
        candidate.fail("launch_failed", f"{type(failure).__name__}: {failure}")
        return
    candidate.max_error = max(candidate.max_error, error)
    candidate.repeats = max(1, math.ceil(plan.sample_s / max(elapsed, 1e-9)))
    if not error <= 1.0:
        candidate.fail("wrong_result", f"error is {error:.3g} times its limit")
    elif elapsed > plan.limit_s:
        candidate.fail("timeout", f"one program took {elapsed:.3g} s, limit {plan.limit_s:g} s")


def _measure_rounds(candidates: list[_Candidate], arena: _Arena, plan: Plan) -> float:
    """Fill in the samples of the quietest of up to three rounds; gives its foreign load."""
    shuffle = random.Random(plan.seed).shuffle
    best, best_load = {}, math.inf
    for _ in range(3):
        load = ForeignLoad()
        samples = _measure_round(candidates, arena, plan, shuffle)
        cores = load.cores()
        if cores < best_load:
            best, best_load = samples, cores
        if cores <= plan.max_load:
            break
    for candidate in candidates:
        candidate.samples_s = best.get(candidate.name, [])
    return best_load if candidates else 0.0


def _measure_round(
    candidates: list[_Candidate], arena: _Arena, plan: Plan, shuffle: Callable[[list[Any]], None]
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {c.name: [] for c in candidates}
    for candidate in candidates:
        end = time.perf_counter() + plan.warmup_s
        while candidate.status == "ok" and time.perf_counter() < end:
            _sample(candidate, arena)
    for _ in range(plan.blocks):
        order = [c for c in candidates if c.status == "ok"]
        shuffle(order)
        for candidate in order:
            samples[candidate.name].append(_sample(candidate, arena))
    return samples


def _sample(candidate: _Candidate, arena: _Arena) -> float:
    try:
        return arena.sample(candidate)
    except Exception as failure:
        candidate.fail("launch_failed", f"{type(failure).__name__}: {failure}")
        return math.nan


def _measurement(c: _Candidate, pair: _Candidate, load: float) -> Measurement:
    if c.status != "ok":
        return Measurement(c.status, reason=c.reason, max_error=c.max_error)
    if pair.status != "ok":
        reason = f"no baseline: {pair.name} is {pair.status}: {pair.reason}"
        return Measurement("ok", tuple(c.samples_s), (), reason, c.max_error, load)
    return Measurement("ok", tuple(c.samples_s), tuple(pair.samples_s), "", c.max_error, load)


def poison(struct: jax.ShapeDtypeStruct) -> jax.Array:
    """An array full of a value that no correct result has: NaN, or the least integer plus one."""
    if jnp.issubdtype(struct.dtype, jnp.inexact):
        return jnp.full(struct.shape, jnp.nan, struct.dtype)
    return jnp.full(struct.shape, jnp.iinfo(struct.dtype).min + 1, struct.dtype)
