#!/usr/bin/env python3
"""Time what a first kernel costs: emitting, compiling, reading back; on a CPU, with no GPU.

    python benchmarks/compile_time.py      # rewrite benchmarks/results/compile.jsonl

Every sample is a process of its own. `process` is the whole of it: Python, the imports, choosing
the schedule, emitting, NVRTC. The other rows are parts that the process times: `first` is
compile_kernel over an empty cache directory, `warm` the same call in a later process, `choose`
the schedule's choice, `emit` the emitter alone. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "results" / "compile.jsonl"
COMMAND = "python benchmarks/compile_time.py"
PROBLEM, DEVICE = "matmul 512x768x3072 nn bfloat16->bfloat16", "a100"
PARTS = ("process", "choose", "first", "warm", "emit")
CHILD = """
import json, sys, time
from jaxpipe.choose import choose
from jaxpipe.compiler import compile_kernel, emit_kernel, target_arch
from jaxpipe.keys import problem_from_key
from jaxpipe.target import device

def timed(function):
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started

problem, gpu = problem_from_key(sys.argv[1]), device(sys.argv[2])
choice, choose_s = timed(lambda: choose(problem, executor="cuda", device=gpu))
schedule = choice.schedule
if sys.argv[3] == "emit":
    kernel, seconds = timed(lambda: emit_kernel(problem, schedule, target_arch(gpu)))
    compiler = ""
else:
    kernel, seconds = timed(lambda: compile_kernel(problem, schedule, gpu))
    compiler = kernel.compiler
print(json.dumps({"choose": choose_s, "seconds": seconds, "schedule": str(schedule),
                  "compiler": compiler}))
"""


def child(part: str, cache: str) -> dict[str, Any]:
    """One process: what it timed, and how long it took in all."""
    environment = {**os.environ, "JAXPIPE_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, PROBLEM, DEVICE, part]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return {**json.loads(done.stdout), "process": time.perf_counter() - started}


def sample(samples: dict[str, list[float]]) -> dict[str, Any]:
    """One sample of every part, added to `samples`; what the compiling process said."""
    with tempfile.TemporaryDirectory() as cache:
        first, warm, emit = (child(part, cache) for part in ("first", "warm", "emit"))
    samples["process"].append(first["process"])
    samples["choose"].append(first["choose"])
    for part, said in (("first", first), ("warm", warm), ("emit", emit)):
        samples[part].append(said["seconds"])
    return first


def processor() -> str:
    """The model that /proc/cpuinfo names, `unknown` without one."""
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def main() -> int:
    """Write every row, print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    samples: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(parser.parse_args().rounds):
        said = sample(samples)
    common = {
        "kind": "compile_time", "device": f"{processor()}, {os.cpu_count()} threads",
        "problem": PROBLEM, "target": DEVICE, "schedule": said["schedule"], "command": COMMAND,
        "versions": {"compiler": said["compiler"], "python": sys.version.split()[0]},
    }  # fmt: skip
    rows = [{**common, "part": part, "samples_s": samples[part]} for part in PARTS]
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for part in PARTS:
        print(f"{part:8} {statistics.median(samples[part]) * 1e3:9.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
