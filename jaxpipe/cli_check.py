"""`python -m jaxpipe check ...`: run the PTX of a kernel on the CPU and say whether it is right.

In: a problem on the command line, a target, perhaps a schedule. Out: error against float64,
hazards, bank conflicts, coalescing and resources; the exit code is 1 on any fault. No GPU is
needed. Nothing here is a measurement: it is what the emitted instructions do, not how fast.
"""

from __future__ import annotations

import argparse

from jaxpipe import command_line, compiler
from jaxpipe.cli_emit import schedule_of
from jaxpipe.explain import add_problem_arguments, problem_of
from jaxpipe.kernel import CompiledKernel
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES
from jaxpipe.runtime.interpreted import check
from jaxpipe.runtime.reference import tolerance
from jaxpipe.target import ARCHES, DEVICES

SHOWN_SITES = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A problem, its target and schedule."""
    add_problem_arguments(parser)
    parser.add_argument("--target", default="a100", help=f"{', '.join((*DEVICES, *ARCHES))}")
    parser.add_argument("--schedule", default="", help="field=value,... over the chosen one")
    parser.add_argument("--seed", type=command_line.natural, default=0, help="of the operands")


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
        f"{report.conflicts_of('operand')} bank conflicts on operand paths, "
        f"{report.conflicts_of('staging')} in the staging of results"
    )
    if loop := report.main_loop:
        shown = ", ".join(f"{k} {v:.1f}" for k, v in loop.instructions_per_trip.items())
        lines.append(f"main loop, per warp and trip: {shown}")
    conflicts = sorted(report.shared, key=lambda site: -site.bank_conflicts)
    lines += [
        f"  {s.bank_conflicts} conflicts of {s.phase} accesses at {s.file}:{s.line}: {s.text}"
        for s in conflicts[:SHOWN_SITES]
        if s.bank_conflicts
    ]
    for site in report.global_[:SHOWN_SITES]:
        lines.append(f"  {site.sectors_per_request:.1f} sectors a request: {site.text}")
    return lines
