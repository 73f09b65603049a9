#!/usr/bin/env python3
"""The host executor against XLA:CPU, numpy's BLAS and (where installed) PyTorch.

    python benchmarks/bench_host.py --quick                  # six shapes, under 40 s
    python benchmarks/bench_host.py --dtype bfloat16 --json benchmarks/results/host.jsonl
    python benchmarks/bench_host.py --threads 1 --group square

Each problem has one schedule, chosen before anything is timed (jaxpipe's own choice, or --rule
default, or --schedule). Times are paired blocks (benchmarks/paired.py). Prints GF/s, the median
ratio to XLA with quartiles and the fraction of the FMA peak that was measured beside it. Exits
with 1 when a result is wrong or, with --quick, when a geomean is below 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

DTYPES = ("float32", "bfloat16", "float16")
GROUPS = ("gemm", "attention", "square", "conv")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--quick", action="store_true", help="six shapes, float32 and bfloat16, XLA and ours"
    )
    p.add_argument("--dtype", action="append", choices=DTYPES, help="repeatable (default: all)")
    p.add_argument("--group", action="append", choices=GROUPS, help="repeatable (default: all)")
    p.add_argument("--shape", default="", help="only cases whose name contains this")
    p.add_argument("--fused", action="store_true", help="bias + gelu instead of the plain product")
    p.add_argument(
        "--prepack", action="store_true", help="our weights packed before (products that can be)"
    )
    p.add_argument("--threads", type=int, help="cores to use (default: all that are allowed)")
    p.add_argument("--rounds", type=int, default=9, help="paired rounds a case (default 9)")
    p.add_argument("--limit", type=float, default=12.0, help="seconds a case may take (12)")
    p.add_argument(
        "--processor-time",
        action="store_true",
        help="time this process's own processor seconds (busy machines; with --threads 1)",
    )
    p.add_argument("--rule", choices=("choose", "default"), default="choose", help="who chooses")
    p.add_argument("--schedule", help="field=value,... laid over the rule's schedule")
    p.add_argument("--no-others", action="store_true", help="leave numpy and PyTorch out")
    p.add_argument("--json", type=pathlib.Path, help="append one row a case to this file")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    args = parser().parse_args(argv)
    args.no_others |= args.quick
    threads = bind(args.threads)
    from benchmarks import host_cases
    from jaxpipe.epilogue import Epilogue

    cases = host_cases.QUICK if args.quick else host_cases.ALL
    groups = args.group or GROUPS
    cases = tuple(c for c in cases if c.group in groups and args.shape in c.name)
    dtypes = args.dtype or (DTYPES[:2] if args.quick else DTYPES)
    rows = []
    print(HEADER)
    for dtype in dtypes:
        for case in cases:
            if args.prepack and not host_cases.can_prepack(case.build(dtype, Epilogue())):
                continue
            row = run(case, dtype, threads, args)
            print(text(row), flush=True)
            rows.append(row)
            if args.json:
                append(args.json, row)
    summary = geomeans(rows)
    for name, value in summary.items():
        print(f"geomean of {name}: {value:.3f}")
    wrong = any(not row["right"] for row in rows)
    return int(wrong or (args.quick and min(summary.values()) < 1.0))


def bind(threads: int | None) -> int:
    """Keep this process on `threads` cores, before any library makes its thread pool."""
    cores = sorted(os.sched_getaffinity(0))
    chosen = cores[-threads:] if threads else cores
    os.sched_setaffinity(0, chosen)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(len(chosen))
    return len(chosen)


def run(case: Any, dtype: str, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one case; the row that describes it."""
    from benchmarks import host_cases, paired
    from jaxpipe import _native
    from jaxpipe.epilogue import Epilogue
    from jaxpipe.schedule import HostSchedule

    problem = case.build(dtype, host_cases.FUSED if args.fused else Epilogue())
    schedule = rule("packed" if args.prepack else args.rule)(problem)
    if args.schedule:
        schedule = HostSchedule.parse(args.schedule, schedule)
    arrays = host_cases.operands(problem)
    functions = candidates(problem, schedule, arrays, args)
    wrong = host_cases.error(problem, functions["jaxpipe"](), arrays)
    plan = paired.RoundPlan(rounds=args.rounds, limit_s=args.limit)
    if args.processor_time:
        plan = replace(plan, clock=time.process_time, max_load=math.inf)
    peak = _native.host_peak_flops(0.02, threads)
    rounds = paired.measure(functions, plan)
    others = {} if args.no_others else other_libraries(problem, arrays)
    if others:  # afterwards: their threads go on spinning between calls
        rounds.seconds |= paired.measure(others, plan).seconds
    peak = max(peak, _native.host_peak_flops(0.02, threads))
    return {
        "kind": "host",
        "case": case.name,
        "group": case.group,
        "problem": problem.key,
        "dtype": dtype,
        "variant": ("bias+gelu" if args.fused else "plain") + (" prepacked" * args.prepack),
        "threads": threads,
        "flops": problem.flops,
        "schedule": schedule.to_json(),
        "rule": args.rule,
        "clock": "processor" if args.processor_time else "wall",
        "right": wrong <= 1.0,
        "error_over_limit": wrong,
        "seconds": rounds.seconds,
        "rounds_dropped": rounds.dropped,
        "is_quiet": rounds.is_quiet,
        "peak_flops": peak,
        "device": _native.host_info()["cpu"],
        "isa": _native.host_info()["isas"][0],
        "versions": versions(),
        "command": " ".join(["python", "benchmarks/bench_host.py", *sys.argv[1:]]),
    }


def rule(name: str) -> Callable[[Any], Any]:
    """Who chooses schedules: what a user gets, or the rule that needs no model."""
    from jaxpipe import choose
    from jaxpipe.model import host_rule
    from jaxpipe.runtime import host
    from jaxpipe.target import host_device

    if name == "default":
        return host.default_schedule
    if name == "packed":
        return lambda problem: host_rule.packed_rule(problem, host_device())
    return lambda problem: choose.choose(problem, executor="host").schedule


def candidates(
    problem: Any, schedule: Any, arrays: Sequence[Any], args: argparse.Namespace
) -> dict[str, Callable[[], Any]]:
    """Functions without arguments, XLA first and ours second."""
    import jax

    import jaxpipe
    from benchmarks import host_cases

    device = [jax.device_put(a) for a in arrays]
    xla = host_cases.xla_function(problem)
    ours = host_cases.our_function(problem, schedule, args.prepack)
    mine = list(device)
    if args.prepack:
        mine[1] = jaxpipe.prepack(device[1]).data
    return {
        "xla": lambda: xla(*device).block_until_ready(),
        "jaxpipe": lambda: ours(*mine).block_until_ready(),
    }


def other_libraries(problem: Any, arrays: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    """numpy and PyTorch on plain products; nothing for what they do not fuse."""
    from benchmarks import host_cases

    if problem.epilogue.is_identity and hasattr(problem, "lhs"):
        return host_cases.other_libraries(problem, arrays)
    return {}


def versions() -> dict[str, str]:
    """What a result depends on."""
    import jax
    import numpy as np

    import jaxpipe

    return {
        "jaxpipe": jaxpipe.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


HEADER = f"{'case':26} {'dtype':9} {'xla':>7} {'jaxpipe':>8} {'ratio [quartiles]':20} {'peak':>5}"


def text(row: dict[str, Any]) -> str:
    """One line for people: GF/s, ratio, fraction of peak."""
    rates = {n: row["flops"] / statistics.median(s) / 1e9 for n, s in row["seconds"].items()}
    low, mid, high = quartiles(row)
    peak = rates["jaxpipe"] * 1e9 / row["peak_flops"]
    others = " ".join(f"{n} {v:.0f}" for n, v in rates.items() if n not in ("xla", "jaxpipe"))
    notes = ("" if row["right"] else "  WRONG") + ("" if row["is_quiet"] else "  (busy machine)")
    return (
        f"{row['case']:26} {row['dtype']:9} {rates['xla']:7.1f} {rates['jaxpipe']:8.1f} "
        f"{mid:5.2f} [{low:.2f}, {high:.2f}]   {peak:5.2f}  {others}{notes}"
    )


def quartiles(row: dict[str, Any]) -> tuple[float, float, float]:
    """Quartiles of XLA's time over ours, round by round."""
    pairs = zip(row["seconds"]["xla"], row["seconds"]["jaxpipe"], strict=True)
    low, mid, high = statistics.quantiles([x / j for x, j in pairs], n=4)
    return low, mid, high


def geomeans(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Geometric mean of the median ratios, by dtype."""
    by_dtype: dict[str, list[float]] = {}
    for row in rows:
        by_dtype.setdefault(row["dtype"], []).append(math.log(quartiles(row)[1]))
    return {dtype: math.exp(statistics.fmean(logs)) for dtype, logs in by_dtype.items()}


def append(path: pathlib.Path, row: dict[str, Any]) -> None:
    """One JSON line, written at once: what was measured survives an interruption."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
