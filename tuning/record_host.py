"""Measure every schedule of csrc/host for a few problems, to judge models and samplers by.

    python tuning/record_host.py [--seconds 105] [--out FILE] [--only TEXT] [--clock wall|cpu]

Writes one record a line (jaxpipe.records.Record), schedules of a problem in random order, and goes
on where it stopped: run it again until it says that nothing is left. With the wall clock run it
alone on the machine. The cpu clock counts the processor time of one thread (threads=1, no XLA
beside it), which other processes disturb little; a record says which clock it holds.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pathlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import jax

from jaxpipe.keys import problem_from_key
from jaxpipe.problem import Layout, Matmul, Problem
from jaxpipe.records import Measurement, Record
from jaxpipe.runtime import execute, reference
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
CPU_BLOCKS, CPU_SAMPLE_S = 5, 0.003
AT_ONCE = 16  # schedules that take turns with each other and with XLA


def main() -> None:
    """Measure what is not recorded yet, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=105.0, help="stop after so long")
    parser.add_argument("--out", type=pathlib.Path, help="default: recorded/host_<cpu>.jsonl.gz")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--only", default="", help="only problems whose key contains this")
    args = parser.parse_args()
    host = host_device()
    suffix = "" if args.clock == "wall" else "_cpu_time"
    out = args.out or HERE / "recorded" / f"host_{host.name}{suffix}.jsonl.gz"
    known = recorded(out)
    stop = time.monotonic() + args.seconds
    left = 0
    for problem in PROBLEMS:
        if args.only in problem.key:
            left += record(problem, host, out, known, stop, args.clock)
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
    clock: str,
) -> int:
    """Measure schedules of `problem` until `stop`; gives how many are left."""
    assert problem_from_key(problem.key) == problem
    space = host_space(problem, host).table.schedules()
    if clock == "cpu":
        space = [replace(s, threads=1) for s in space]
    schedules = [s for s in space if (problem.key, s) not in known]
    random.Random(problem.key).shuffle(schedules)
    for at, group in groups(schedules):
        if time.monotonic() > stop:
            return len(schedules) - at
        timed = measure_cpu if clock == "cpu" else measure_wall
        rows = timed(problem, group)
        lines = [
            Record(problem.key, "host", host.name, s, m, versions=versions(clock)).to_json() + "\n"
            for s, m in zip(group, rows, strict=True)
        ]
        with gzip.open(out, "at") as file:
            file.writelines(lines)
        print(f"{problem.key}: {at + len(group)} of {len(schedules)}", flush=True)
    return 0


def measure_wall(problem: Problem, schedules: Sequence[HostSchedule]) -> Sequence[Measurement]:
    """The project's one method: paired with XLA, verified, seconds by the wall clock."""
    return measure(problem, list(schedules), executor="host", plan=PLAN)


def measure_cpu(problem: Problem, schedules: Sequence[HostSchedule]) -> Sequence[Measurement]:
    """Processor seconds of each schedule on one thread; blocks in shuffled order, no baseline."""
    operands = reference.random_operands(problem, 0)
    calls = [_compiled(problem, s, operands) for s in schedules]
    samples: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    for _ in range(CPU_BLOCKS):
        random.shuffle(order)
        for i in order:
            samples[i].append(_cpu_seconds(calls[i]))
    return [Measurement("ok", tuple(row)) for row in samples]


def _compiled(problem: Problem, schedule: HostSchedule, operands: object) -> Callable[[], object]:
    def run(values: object) -> object:
        return execute.run(problem, schedule, values, executor="host")

    program = jax.jit(run).lower(operands).compile()
    return lambda: jax.block_until_ready(program(operands))


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Processor seconds of one call, over at least CPU_SAMPLE_S of them."""
    call()
    start, count = time.process_time(), 0
    while time.process_time() - start < CPU_SAMPLE_S:
        call()
        count += 1
    return (time.process_time() - start) / count


def groups(schedules: list[HostSchedule]) -> Iterator[tuple[int, list[HostSchedule]]]:
    """Slices of the list with where they start."""
    for at in range(0, len(schedules), AT_ONCE):
        yield at, schedules[at : at + AT_ONCE]


def versions(clock: str) -> tuple[tuple[str, str], ...]:
    """What makes two measurements comparable."""
    source = os.environ.get("JAXPIPE_REVISION", "")
    named = {"jax": jax.__version__, "jaxpipe": VERSION, "revision": source, "clock": clock}
    return tuple(sorted((k, v) for k, v in named.items() if v))


if __name__ == "__main__":
    main()
