"""Times one function against a baseline in paired blocks of back-to-back calls.

In: a baseline, a candidate and further functions, all without arguments. Out: seconds a call of
each kept round. It must not know what is computed. Method: a round holds one block of every
function, the baseline and the candidate next to each other in alternating order; a block calls one
function again and again, its first calls are not timed (they find the caches as the other left
them); a round during which other processes used the cores is dropped. So the ratio of a round is
of two loops in the same state of the machine. Interleaving many candidates call by call instead
runs the baseline cold and flatters whatever is tuned against it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxpipe.runtime.load import ForeignLoad

Function = Callable[[], object]
Clock = Callable[[], float]
UNTIMED_CALLS = 2
LEAST_ROUNDS = 2  # whatever the limit says: quartiles need two


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """rounds wanted; seconds of a block; give up after limit_s; foreign cores that are allowed.

    clock: time.process_time counts this process's own processor time instead (all its threads),
    for machines that never are quiet; set max_load to infinity with it.
    """

    rounds: int = 9
    block_s: float = 0.05
    limit_s: float = 12.0
    max_load: float = 0.1
    clock: Clock = time.perf_counter


@dataclass(slots=True)
class Rounds:
    """Seconds a call by function name, one entry a kept round.

    dropped: rounds that others disturbed. is_quiet: False when too few rounds were undisturbed, so
    that disturbed ones were kept: then nothing here is evidence.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    dropped: int = 0
    is_quiet: bool = True

    def ratios(self, baseline: str, candidate: str) -> list[float]:
        """Baseline time over candidate time, round by round: above 1 the candidate is faster."""
        pairs = zip(self.seconds[baseline], self.seconds[candidate], strict=True)
        return [b / c for b, c in pairs]

    def median_s(self, name: str) -> float:
        """Median seconds of one call."""
        return statistics.median(self.seconds[name])


def measure(functions: Mapping[str, Function], plan: RoundPlan) -> Rounds:
    """Rounds of all `functions`: the first is the baseline, the second the candidate."""
    calls = {name: _calls_that_fill(f, plan) for name, f in functions.items()}
    result, noisy = Rounds({name: [] for name in functions}), []
    end = time.perf_counter() + plan.limit_s
    turn = 0
    while len(result.seconds[next(iter(functions))]) < plan.rounds:
        if time.perf_counter() >= end and turn >= LEAST_ROUNDS:
            break
        load = ForeignLoad()
        samples = _round(functions, calls, turn, plan.clock)
        turn += 1
        if load.cores() > plan.max_load:
            result.dropped += 1
            noisy.append(samples)
            continue
        _add(result, samples)
    kept = len(result.seconds[next(iter(functions))])
    if 2 * kept < plan.rounds:
        result.is_quiet = False
        for samples in noisy[kept - plan.rounds :]:
            _add(result, samples)
    return result


def _add(result: Rounds, samples: Mapping[str, float]) -> None:
    for name, seconds in samples.items():
        result.seconds[name].append(seconds)


def _round(
    functions: Mapping[str, Function], calls: Mapping[str, int], turn: int, clock: Clock
) -> dict[str, float]:
    names = list(functions)
    pair = names[:2] if turn % 2 == 0 else names[1::-1]
    return {name: _block(functions[name], calls[name], clock) for name in [*pair, *names[2:]]}


def _block(function: Function, calls: int, clock: Clock) -> float:
    for _ in range(UNTIMED_CALLS):
        function()
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def _calls_that_fill(function: Function, plan: RoundPlan) -> int:
    function()
    elapsed = _block(function, 3, plan.clock)
    return max(3, round(plan.block_s / max(elapsed, 1e-7)))
