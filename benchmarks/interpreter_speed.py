#!/usr/bin/env python3
"""Time the PTX interpreter on one core: 256 x 256 x 256 bfloat16 with every check.

    python benchmarks/interpreter_speed.py       # rewrite results/interpreter_speed.jsonl

A row is one kernel family: seconds of wall clock of one whole run (parameters, all blocks, all
checks, the report), the first with parsing and encoding of the PTX, the others without. Run it on
a quiet machine.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxpipe import _native, compiler  # noqa: E402
from jaxpipe.problem import Matmul  # noqa: E402
from jaxpipe.ptx.run import ADVERSARIAL_MODES  # noqa: E402
from jaxpipe.runtime import interpreted  # noqa: E402
from jaxpipe.runtime.reference import numpy_operands  # noqa: E402
from jaxpipe.schedule import GpuSchedule  # noqa: E402
from jaxpipe.version import VERSION  # noqa: E402

OUT = ROOT / "benchmarks/results/interpreter_speed.jsonl"
PROBLEM = Matmul(256, 256, 256)
SCHEDULES = {
    "sm_80": GpuSchedule(block_m=128, block_n=128, block_k=32, smem_stages=3),
    "sm_90a": GpuSchedule(family="hopper", block_m=128, block_n=128, block_k=64, smem_stages=3),
}
SAMPLES = 7


def row(target: str) -> dict[str, object]:
    """Times of one family's kernel."""
    compiled = compiler.compile_kernel(PROBLEM, SCHEDULES[target], target)
    operands, samples = numpy_operands(PROBLEM, 0), []
    for _ in range(SAMPLES + 1):
        started = time.perf_counter()
        _, report = interpreted.run(compiled, operands, ADVERSARIAL_MODES[0], threads=1)
        samples.append(round(time.perf_counter() - started, 4))
        report.raise_on_hazard(str(PROBLEM))
    instructions = sum(report.instructions.values())
    return {
        "kind": "interpreter_speed", "device": _native.host_info()["cpu"], "problem": str(PROBLEM),
        "target": f"{target} (interpreted, not run)", "schedule": str(SCHEDULES[target]),
        "threads": 1, "warp_instructions": instructions, "first_s": samples[0],
        "samples_s": samples[1:], "median_s": statistics.median(samples[1:]),
        "command": "python benchmarks/interpreter_speed.py", "versions": {"jaxpipe": VERSION},
    }  # fmt: skip


def main() -> int:
    """Write the rows."""
    rows = [row(target) for target in SCHEDULES]
    OUT.write_text("".join(json.dumps(r) + "\n" for r in rows))
    print("\n".join(f"{r['target']}: {r['median_s']} s, first {r['first_s']} s" for r in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
