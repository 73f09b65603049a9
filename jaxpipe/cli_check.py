"""`python -m jaxpipe check ...`: run the PTX of a kernel on the CPU and say whether it is right.

In: a problem on the command line, a target, perhaps a schedule. Out: error against float64,
hazards, bank conflicts, coalescing and resources; the exit code is 1 on any fault. No GPU is
needed. Nothing here is a measurement: it is what the emitted instructions do, not how fast.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from jaxpipe import compiler
from jaxpipe.cli_emit import schedule_of
from jaxpipe.explain import add_problem_arguments, problem_of
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Problem
from jaxpipe.ptx.parse import parse
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Buffer, Mode, run_launches
from jaxpipe.runtime.reference import expected, random_operands, result_shape, tolerance
from jaxpipe.target import ARCHES, DEVICES

SHOWN_SITES = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """One mode: the largest |got - expected| / max(1, |expected|), and what was found."""

    mode: Mode
    error: float
    report: Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A problem, its target and schedule."""
    add_problem_arguments(parser)
    parser.add_argument("--target", default="a100", help=f"{', '.join((*DEVICES, *ARCHES))}")
    parser.add_argument("--schedule", default="", help="field=value,... over the chosen one")
    parser.add_argument("--seed", type=int, default=0, help="of the operands")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 0 when there is no fault, else 1."""
    problem = problem_of(args)
    schedule, arch = schedule_of(args, problem)
    compiled = compiler.compile_kernel(problem, schedule, arch, line_info=True)
    print(f"{problem}\n{schedule}\n{arch.name}, {compiled.compiler}")
    if not compiled.kernel.launches:
        print("nothing to launch: the result is empty")
        return 0
    checked = [check(compiled, mode, args.seed) for mode in ADVERSARIAL_MODES]
    limit = tolerance(problem)
    for one in checked:
        verdict = "ok" if one.error <= limit and one.report.ok else "FAULT"
        print(
            f"{one.mode.landing} landing, {one.mode.order} warps: error {one.error:.2e} "
            f"(limit {limit:.2e}), {len(one.report.hazards)} hazards: {verdict}"
        )
        for hazard in one.report.hazards:
            print(f"  {hazard.text}")
    for line in figures(compiled, checked[0].report):
        print(line)
    return 0 if all(one.error <= limit and one.report.ok for one in checked) else 1


def check(compiled: CompiledKernel, mode: Mode, seed: int = 0) -> Checked:
    """Interpret `compiled` on random operands in one mode and compare with float64."""
    problem = compiled.kernel.problem
    operands = random_operands(problem, seed)
    shape = result_shape(problem)
    rows, cols = np.arange(int(np.prod(shape[:-1]))), np.arange(shape[-1])
    names = ("out", "preactivation") if problem.epilogue.save_preactivation else ("out",)
    results = {name: _poisoned(problem, shape) for name in names}
    held: dict[str, np.ndarray | Buffer] = {}
    for role, value in operands.items():
        held[role] = Buffer(np.ascontiguousarray(value), writable=False)
    for name, array in results.items():
        held[name] = Buffer(array, written=False)
    if compiled.kernel.workspace_bytes:
        scratch = np.full(compiled.kernel.workspace_bytes, 0xFF, np.uint8)
        held["workspace"] = Buffer(scratch, written=False)
    report = run_launches(parse(compiled.ptx), compiled.kernel.launches, held, mode)
    wanted = expected(problem, operands, rows, cols)
    errors = [
        _error(results[name].astype(np.float64).reshape(want.shape), want)
        for name, want in zip(names, wanted, strict=True)
    ]
    return Checked(mode, max(errors), report)


def _poisoned(problem: Problem, shape: tuple[int, ...]) -> np.ndarray:
    """A result in which every element is NaN, or the least integer, until it is written."""
    name = problem.out_dtype
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    if np.issubdtype(dtype, np.integer):
        return np.full(shape, np.iinfo(dtype).min, dtype)
    return np.full(shape, np.nan).astype(dtype)


def _error(got: np.ndarray, want: np.ndarray) -> float:
    difference = np.abs(got - want) / np.maximum(1.0, np.abs(want))
    return float("inf") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def figures(compiled: CompiledKernel, report: Report) -> list[str]:
    """Resources, traffic, and the access sites that conflict or are not coalesced."""
    lines = [
        f"{r.entry}: {r.registers} registers, "
        f"{r.spill_store_bytes + r.spill_load_bytes} bytes spilled"
        for r in compiled.resources
    ]
    lines.append("bytes: " + ", ".join(f"{k} {v}" for k, v in sorted(report.bytes.items())))
    lines.append(
        f"{report.tensor_instructions} tensor-core instructions, {report.barriers} barriers, "
        f"{report.bank_conflicts} bank conflicts"
    )
    if loop := report.main_loop:
        shown = ", ".join(f"{k} {v:.1f}" for k, v in loop.instructions_per_trip.items())
        lines.append(f"main loop, per warp and trip: {shown}")
    conflicts = sorted(report.shared, key=lambda site: -site.bank_conflicts)
    lines += [
        f"  {s.bank_conflicts} conflicts at {s.file}:{s.line}: {s.text}"
        for s in conflicts[:SHOWN_SITES]
        if s.bank_conflicts
    ]
    for site in report.global_[:SHOWN_SITES]:
        lines.append(f"  {site.sectors_per_request:.1f} sectors a request: {site.text}")
    return lines
