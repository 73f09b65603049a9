#!/usr/bin/env python3
"""(b) Operators against XLA, with XLA's Triton products switched on and off.

    python benchmarks/device/b_operators.py [--dry-run] [--only TEXT]

Every problem of campaign.PROBLEMS with the schedule that jaxpipe chooses, paired with XLA's own
program in the same process. XLA's flags are fixed when a process starts: each setting is a child.
Writes operators.jsonl.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from dataclasses import asdict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.device import campaign
from jaxpipe.choose import choose
from jaxpipe.compiler import compile_kernel
from jaxpipe.errors import JaxpipeError
from jaxpipe.problem import Problem
from jaxpipe.runtime.measure import measure

TRITON = {"on": "", "off": "--xla_gpu_enable_triton_gemm=false"}


def measure_one(run: campaign.Campaign, problem: Problem, triton: str) -> str:
    """Measure, write the row, and give a line for people."""
    choice = choose(problem, executor="cuda", device=run.gpu)
    compiled = compile_kernel(problem, choice.schedule, run.gpu)  # type: ignore[arg-type]
    spills = sum(r.spill_store_bytes for r in compiled.resources)
    if run.is_dry:
        return f"{problem}: {choice.schedule} ({choice.source}), {spills} bytes spilled"
    (got,) = measure(problem, [choice.schedule], executor="cuda", arch=run.gpu.arch)
    row = {
        "kind": "operator", "problem": problem.key, "schedule": str(choice.schedule),
        "source": choice.source, "triton": triton, "flops": problem.flops, **asdict(got),
    }  # fmt: skip
    run.write("operators.jsonl", row)
    rate = problem.flops / got.median_s / 1e12
    time = f"{got.median_s * 1e6:.1f} us {rate:.0f} TFLOP/s, XLA x {got.speedup:.2f}"
    return f"{problem}: {got.status} {time} {got.reason}"


def child(run: campaign.Campaign, triton: str, only: str) -> int:
    """All problems in this process; the number that failed."""
    failed = 0
    for problem in campaign.PROBLEMS:
        if only not in str(problem) or run.left_s < 0:
            continue
        try:
            print(measure_one(run, problem, triton), flush=True)
        except JaxpipeError as error:
            failed += 1
            print(f"{problem}: {error}", flush=True)
    return failed


def main() -> int:
    """Returns 1 when a problem could not be served."""
    parser = campaign.parser(__doc__, 270)
    parser.add_argument("--only", default="", help="problems whose text holds this")
    parser.add_argument("--triton", choices=sorted(TRITON), help="one setting, in this process")
    args = parser.parse_args()
    if args.triton:
        return min(1, child(campaign.begin(args), args.triton, args.only))
    failed = 0
    for name, flag in TRITON.items():
        flags = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
        command = [sys.executable, __file__, *sys.argv[1:], "--triton", name]
        failed |= subprocess.run(
            command, env={**os.environ, "XLA_FLAGS": flags}, check=False
        ).returncode
        if args.dry_run or failed == campaign.NO_GPU:
            break
    return failed


if __name__ == "__main__":
    sys.exit(main())
