"""Measure every schedule of csrc/host for a few problems, to judge models and samplers by.

    python tuning/record_host.py [--seconds 105] [--out FILE] [--only TEXT]

Writes one record a line (jaxpipe.records.Record), schedules of a problem in random order, and goes
on where it stopped: run it again until it says that nothing is left. Run it alone on the machine.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pathlib
import random
import time
from collections.abc import Iterator

import jax

from jaxpipe.keys import problem_from_key
from jaxpipe.problem import Layout, Matmul, Problem
from jaxpipe.records import Record
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import Plan
from jaxpipe.schedule import HostSchedule
from jaxpipe.space import host_space
from jaxpipe.target import HostDevice, host_device
from jaxpipe.version import VERSION

HERE = pathlib.Path(__file__).parent
NT = Layout(transposed=True)
# Products of BERT-base, MiniLM and GPT-2 at batch 1 to 4: linear layers, attention, decoding.
PROBLEMS: tuple[Problem, ...] = (
    Matmul(512, 768, 768, dtype="float32"),
    Matmul(512, 3072, 768, dtype="float32"),
    Matmul(512, 768, 3072, dtype="float32"),
    Matmul(128, 768, 768, dtype="float32"),
    Matmul(1024, 2304, 768, dtype="float32"),
    Matmul(16, 3072, 768, dtype="float32"),
    Matmul(1, 3072, 768, dtype="float32"),
    Matmul(512, 512, 64, batch=(12,), dtype="float32", rhs=NT),
    Matmul(512, 64, 512, batch=(12,), dtype="float32"),
    Matmul(512, 768, 768, dtype="bfloat16"),
    Matmul(512, 768, 3072, dtype="bfloat16"),
    Matmul(128, 3072, 768, dtype="bfloat16"),
    Matmul(1024, 1024, 64, batch=(12,), dtype="bfloat16", rhs=NT),
)
PLAN = Plan(blocks=7, sample_s=0.003, warmup_s=0.005)
AT_ONCE = 16  # schedules that take turns with each other and with XLA


def main() -> None:
    """Measure what is not recorded yet, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=105.0, help="stop after so long")
    parser.add_argument("--out", type=pathlib.Path, help="default: recorded/host_<cpu>.jsonl.gz")
    parser.add_argument("--only", default="", help="only problems whose key contains this")
    args = parser.parse_args()
    host = host_device()
    out = args.out or HERE / "recorded" / f"host_{host.name}.jsonl.gz"
    known = recorded(out)
    stop = time.monotonic() + args.seconds
    left = 0
    for problem in PROBLEMS:
        if args.only in problem.key:
            left += record(problem, host, out, known, stop)
    print(f"{left} schedules left" if left else "nothing left", flush=True)


def recorded(path: pathlib.Path) -> set[tuple[str, HostSchedule]]:
    """What is in the file already: (problem, schedule)."""
    if not path.exists():
        return set()
    with gzip.open(path, "rt") as lines:
        records = [Record.from_json(line) for line in lines]
    return {(r.problem, r.schedule) for r in records if isinstance(r.schedule, HostSchedule)}


def record(
    problem: Problem,
    host: HostDevice,
    out: pathlib.Path,
    known: set[tuple[str, HostSchedule]],
    stop: float,
) -> int:
    """Measure schedules of `problem` until `stop`; gives how many are left."""
    assert problem_from_key(problem.key) == problem
    space = host_space(problem, host).table.schedules()
    schedules = [s for s in space if (problem.key, s) not in known]
    random.Random(problem.key).shuffle(schedules)
    for at, group in groups(schedules):
        if time.monotonic() > stop:
            return len(schedules) - at
        rows = measure(problem, group, executor="host", plan=PLAN)
        lines = [
            Record(problem.key, "host", host.name, s, m, versions=versions()).to_json() + "\n"
            for s, m in zip(group, rows, strict=True)
        ]
        with gzip.open(out, "at") as file:
            file.writelines(lines)
        print(f"{problem.key}: {at + len(group)} of {len(schedules)}", flush=True)
    return 0


def groups(schedules: list[HostSchedule]) -> Iterator[tuple[int, list[HostSchedule]]]:
    """Slices of the list with where they start."""
    for at in range(0, len(schedules), AT_ONCE):
        yield at, schedules[at : at + AT_ONCE]


def versions() -> tuple[tuple[str, str], ...]:
    """What makes two measurements comparable."""
    source = os.environ.get("JAXPIPE_REVISION", "")
    named = {"jax": jax.__version__, "jaxpipe": VERSION, "revision": source}
    return tuple(sorted((k, v) for k, v in named.items() if v))


if __name__ == "__main__":
    main()
