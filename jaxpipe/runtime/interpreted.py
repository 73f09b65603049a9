"""Runs a compiled kernel on the CPU on numpy operands, and judges it: error and hazards.

In: a CompiledKernel, operands by role, a Mode. Out: results as arrays and the interpreter's Report.
Inputs are read-only, results and workspace count as unwritten until the kernel writes them. It
must not know who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from jaxpipe.kernel import BufferRole, CompiledKernel
from jaxpipe.problem import Problem
from jaxpipe.ptx.report import Report, merge
from jaxpipe.ptx.run import Buffer, Mode, run_launches
from jaxpipe.runtime.reference import expected, numpy_operands, result_shape

Results = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """One mode: the largest |got - expected| / max(1, |expected|), and what was found."""

    mode: Mode
    error: float
    report: Report


def run(
    compiled: CompiledKernel,
    operands: Mapping[BufferRole, np.ndarray],
    mode: Mode,
    threads: int | None = None,
) -> tuple[Results, Report]:
    """`(y,)` or `(y, preactivation)` and the report; hazards are reported, not raised."""
    problem = compiled.kernel.problem
    names = ("out", "preactivation") if problem.epilogue.save_preactivation else ("out",)
    results = {name: _poisoned(problem) for name in names}
    held: dict[str, np.ndarray | Buffer] = {}
    for role, value in operands.items():
        held[role] = Buffer(np.ascontiguousarray(value), writable=False)
    for name, array in results.items():
        held[name] = Buffer(array, written=False)
    if compiled.kernel.workspace_bytes:
        scratch = np.full(compiled.kernel.workspace_bytes, 0xFF, np.uint8)
        held["workspace"] = Buffer(scratch, written=False)
    if not compiled.kernel.launches:  # an empty result has no kernel
        return tuple(results.values()), merge(())
    report = run_launches(compiled.ptx, compiled.kernel.launches, held, mode, threads=threads)
    return tuple(results.values()), report


def check(
    compiled: CompiledKernel, mode: Mode, seed: int = 0, threads: int | None = None
) -> Checked:
    """Run `compiled` on random operands in one mode and compare every result with float64."""
    problem = compiled.kernel.problem
    operands = numpy_operands(problem, seed)
    results, report = run(compiled, operands, mode, threads)
    rows, cols = np.arange(problem.batch_size * problem.m), np.arange(problem.n)
    wanted = expected(problem, operands, rows, cols)
    errors = [
        _error(got.astype(np.float64).reshape(want.shape), want)
        for got, want in zip(results, wanted, strict=True)
    ]
    return Checked(mode, max(errors), report)


def _poisoned(problem: Problem) -> np.ndarray:
    """A result in which every element is NaN, or the least integer, until it is written."""
    name, shape = problem.out_dtype, result_shape(problem)
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if np.issubdtype(dtype, np.integer):
        return np.full(shape, np.iinfo(dtype).min, dtype)
    return np.full(shape, np.nan).astype(dtype)


def _error(got: np.ndarray, want: np.ndarray) -> float:
    difference = np.abs(got - want) / np.maximum(1.0, np.abs(want))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))
