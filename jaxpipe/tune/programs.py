"""The products of a whole program: traced, collected, and given trials by their share of time.

In: a JAX function with its arguments. Out: its distinct problems with counts, and how many trials
each is worth. It must not know samplers or how anything is measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jaxpipe.choose import constructed
from jaxpipe.errors import JaxpipeError, RecordError
from jaxpipe.keys import problem_from_key
from jaxpipe.ops.coverage import coverage
from jaxpipe.problem import Layout, Matmul, Problem
from jaxpipe.target import Device, HostDevice

LEAST_TRIALS = 8


def problems_of(function: Callable[..., Any], *arguments: Any) -> Counter[Problem]:
    """Problems that `function(*arguments)` gives to jaxpipe, with how often; nothing is run.

    The function is lowered once, outside of any jit that already compiled it.
    """
    with coverage() as counted:
        jax.jit(lambda *given: function(*given)).lower(*arguments)
    found: Counter[Problem] = Counter()
    for site, count in counted.rows():
        if site.implementation == "xla":
            continue
        try:
            found[_dense(problem_from_key(site.problem))] += count
        except RecordError:
            continue
    return found


def _dense(problem: Problem) -> Problem:
    """The problem with dense operands: what is measured for one that is a view of a larger array.

    Its record serves the view as a nearest one (tuned.octaves_between).
    """
    if not isinstance(problem, Matmul):
        return problem
    lhs, rhs = Layout(problem.lhs.transposed), Layout(problem.rhs.transposed)
    return dataclasses.replace(problem, lhs=lhs, rhs=rhs)


def shares(counts: Mapping[Problem, int], target: Device | HostDevice) -> dict[Problem, float]:
    """Each problem's share of the predicted time of all, largest first.

    Problems that no schedule serves, or that compute nothing, are left out.
    """
    seconds: dict[Problem, float] = {}
    for problem, count in counts.items():
        if problem.is_empty:
            continue
        try:
            seconds[problem] = count * constructed(problem, target)[1].seconds
        except JaxpipeError:
            continue
    total = math.fsum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: (-item[1], item[0].key))
    return {problem: s / total for problem, s in ordered}


def trials_of(share: Mapping[Problem, float], budget: int) -> dict[Problem, int]:
    """`budget` trials over the problems by share, LEAST_TRIALS or more for each that gets any.

    Where the budget does not reach, the smallest shares get none.
    """
    served = list(share)[: max(1, budget // LEAST_TRIALS)]
    left = budget - LEAST_TRIALS * len(served)
    total = math.fsum(share[p] for p in served)
    return {p: LEAST_TRIALS + max(0, math.floor(left * share[p] / total)) for p in served}
