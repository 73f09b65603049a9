#!/usr/bin/env python3
"""(a) First on any GPU: does what was tested without one hold on one?

    python benchmarks/device/a_contract.py [--dry-run]

Runs doctor, the executor contract (tests/contracts.py: the suite that the interpreters and the
host pass too), the other tests marked gpu, then a sample of kernels under compute-sanitizer
(memcheck and racecheck) where the toolkit has it. Fix what this shows before any other campaign.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import jaxpipe
from benchmarks.device import campaign

PYTEST = ("-m", "pytest", "-q", "-n0", "-m", "gpu")
CONTRACT = (*PYTEST, "tests/gpu/test_executor_contract.py")
TESTS = (*PYTEST, "tests/gpu/test_contract.py")
SAMPLE = ("-k", "sample")
SANITIZERS = ("memcheck", "racecheck")


def sanitizer() -> str | None:
    """Path of compute-sanitizer, or None."""
    places = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
    return next((found for place in places if (found := shutil.which(place))), None)


def steps() -> list[tuple[str, list[str]]]:
    """(name, command) of every step after doctor."""
    commands = [("contract", [sys.executable, *CONTRACT]), ("tests", [sys.executable, *TESTS])]
    if (path := sanitizer()) is None:
        print("compute-sanitizer: not found, its steps are left out")
        return commands
    for tool in SANITIZERS:
        check = [path, "--tool", tool, "--error-exitcode", "9", "--kernel-regex", "kns=jaxpipe"]
        commands.append((tool, [*check, sys.executable, *TESTS, *SAMPLE]))
    return commands


def main() -> int:
    """Returns the number of failed steps."""
    run = campaign.begin(campaign.parser(__doc__, 540).parse_args())
    report = jaxpipe.doctor()
    print(report)
    failed = 0 if report.is_healthy else 1
    for name, command in steps():
        print(f"{name}: {' '.join(command)}", flush=True)
        if run.is_dry:
            command = [*command, "--collect-only"]
        result = subprocess.run(
            command, cwd=campaign.ROOT, timeout=max(1.0, run.left_s), check=False
        )
        run.write("contract.jsonl", {"kind": "contract", "step": name, "rc": result.returncode})
        failed += result.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
