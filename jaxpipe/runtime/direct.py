"""Measures kernels through the driver alone, outside of XLA: for sweeps over many candidates.

In: compiled kernels of one problem. Out: a Measurement each. A sample is the replay of a CUDA graph
of launches between two events, divided by their number: device time, without XLA's dispatch.
Operands and results are JAX arrays, so checks are those of measure.py. It must not know schedules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jaxpipe import _native
from jaxpipe.kernel import BufferRole, CompiledKernel
from jaxpipe.problem import Problem
from jaxpipe.records import Measurement
from jaxpipe.runtime import launch
from jaxpipe.runtime.measure import Check, operand_groups
from jaxpipe.runtime.timing import DEFAULT_PLAN, Plan, poison

MAX_LAUNCHES = 200
Arrays = Mapping[BufferRole, jax.Array]
_COUNT = itertools.count()


class DirectBench:
    """Operand sets and references of a problem on one device; measures kernels in turn."""

    def __init__(self, problem: Problem, device: int = 0, plan: Plan = DEFAULT_PLAN) -> None:
        self.problem, self.device, self.plan = problem, device, plan
        (self._sets,) = operand_groups(problem, "cuda", plan)
        self._check = Check(problem, self._sets)

    def measure(self, compiled: CompiledKernel) -> Measurement:
        """Check on poisoned results, time, check again; a failure is a status."""
        name = f"direct {next(_COUNT)}"
        try:
            error = self._run(name, compiled)
            if not error <= 1.0:
                return Measurement(
                    "wrong_result", reason=f"error is {error:.3g} times its limit", max_error=error
                )
            samples = self._time(compiled)
            error = max(error, self._run(name, compiled))
        except RuntimeError as failure:
            return Measurement("launch_failed", reason=str(failure))
        if not error <= 1.0:
            return Measurement("wrong_result", reason="differs from run to run", max_error=error)
        return Measurement("ok", tuple(samples), max_error=error)

    def _results(self, compiled: CompiledKernel) -> list[dict[BufferRole, jax.Array]]:
        structs = launch.results_of(compiled)
        return [{role: poison(s) for role, s in structs.items()} for _ in self._sets]

    def _run(self, name: str, compiled: CompiledKernel) -> float:
        results = self._results(compiled)
        calls, call = self._arguments(compiled, results)
        _native.cuda_run(self.device, *call, calls)
        written = [tuple(y for role, y in r.items() if role != "workspace") for r in results]
        return self._check(name, written)

    def _time(self, compiled: CompiledKernel) -> list[float]:
        """One quick replay finds how many launches fill a sample."""
        results = self._results(compiled)
        calls, call = self._arguments(compiled, results)
        (once,) = _native.cuda_time(self.device, *call, calls, len(calls), 1)
        fill = math.ceil(self.plan.sample_s / max(once, 1e-9))
        launches = min(MAX_LAUNCHES, max(len(calls), fill))
        return _native.cuda_time(self.device, *call, calls, launches, self.plan.blocks)

    def _arguments(
        self, compiled: CompiledKernel, results: Sequence[Arrays]
    ) -> tuple[
        list[tuple[list[tuple[int, int]], list[tuple[int, int]]]],
        tuple[list[int], str, str, bytes],
    ]:
        """Calls as (address, bytes) of operands and results, and what is the same for all."""
        attributes = launch.attributes_of(compiled, self._sets[0], "cuda")
        jax.block_until_ready((self._sets, results))
        calls = [
            (_addresses(operands), _addresses(result))
            for operands, result in zip(self._sets, results, strict=True)
        ]
        words = np.asarray(attributes["recipe"]).tolist()
        return calls, (
            words, str(attributes["names"]), compiled.key, bytes(attributes["cubin"])  # type: ignore[call-overload]
        )  # fmt: skip


def _addresses(arrays: Arrays) -> list[tuple[int, int]]:
    return [(int(a.unsafe_buffer_pointer()), int(a.nbytes)) for a in arrays.values()]
