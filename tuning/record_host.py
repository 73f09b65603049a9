#!/usr/bin/env python3
"""Record every host schedule of some products: python tuning/record_host.py 512x768x3072 ...

Writes recorded/host_<device>_exhaustive_<clock>.jsonl.gz, one ledger record a schedule, for replay
by compare_samplers.py, and what this CPU is to recorded/hosts.json. --clock wall takes the wall
clock of all threads and needs the machine alone; cpu takes the processor time of one thread, which
other processes hardly disturb. Shapes are MxNxK or BxMxNxK, float32. Schedules take turns in
rounds, so that drift falls on all alike. A shape that was recorded before is replaced.
"""

import argparse
import dataclasses
import gzip
import math
import pathlib
import random
import time

import jax
import recorded_hosts

from jaxpipe.model import host as host_model
from jaxpipe.problem import Matmul
from jaxpipe.records import Measurement, Record
from jaxpipe.runtime import execute, reference
from jaxpipe.runtime.calibrate import clock_under_load_hz
from jaxpipe.space import host_space
from jaxpipe.target import HostDevice, host_device
from jaxpipe.version import VERSION

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
SAMPLE_S = 0.01
"""A sample is the mean of so many calls as take this long, as in a study."""
FOLDER = pathlib.Path(__file__).parent / "recorded"


def problem_of(shape: str) -> Matmul:
    """The float32 product of MxNxK or BxMxNxK."""
    *batch, m, n, k = map(int, shape.split("x"))
    return Matmul(m, n, k, tuple(batch), dtype="float32")


def record(problem: Matmul, clock: str, rounds: int, limit_s: float) -> list[Record]:
    """A record of every schedule of `problem`; as many rounds as `limit_s` allows, at least 3."""
    host = host_device()
    threads = 1 if clock == "cpu" else 0
    space = host_space(problem, host)
    operands = reference.random_operands(problem, 0)
    programs = []
    for row in range(len(space)):
        schedule = dataclasses.replace(space.schedule(row), threads=threads)
        programs.append(_program(problem, schedule, operands))
    samples: list[list[float]] = [[] for _ in programs]
    started = time.monotonic()
    for number in range(rounds):
        if number >= 3 and time.monotonic() - started > limit_s:
            break
        for row in random.Random(number).sample(range(len(programs)), len(programs)):
            calls = math.ceil(SAMPLE_S / samples[row][0]) if samples[row] else 1
            samples[row].append(_seconds(programs[row], operands, calls, CLOCKS[clock]))
    predicted = host_model.predict_many(problem, space.table, host)
    versions = {"clock": clock, "jax": jax.__version__, "jaxpipe": VERSION}
    return [
        Record(
            problem.key, "host", host.name, space.schedule(row),
            Measurement("ok", tuple(float(f"{s:.5g}") for s in samples[row][1:])),
            float(predicted[row]), (), tuple(sorted(versions.items())),
        )
        for row in range(len(space))
    ]  # fmt: skip


def seen_host() -> HostDevice:
    """This CPU as the system shows it, at the clock that its multiply-adds run at."""
    host = host_device()
    source = "caches of /sys, clock from csrc/host's burst of multiply-adds; other rates typical"
    return dataclasses.replace(host, clock_hz=clock_under_load_hz(host), source=source)


def _seconds(program, operands, calls, clock):
    start = clock()
    for _ in range(calls):
        jax.block_until_ready(program(operands))
    return (clock() - start) / calls


def _program(problem, schedule, operands):
    def function(given):
        return execute.run(problem, schedule, given, executor="host")

    return jax.jit(function).lower(operands).compile()


def replace_rows(path: pathlib.Path, records: list[Record]) -> None:
    """Write `records` to `path` in place of what it has of their problem; the same bytes for the
    same rows."""
    kept: list[str] = []
    if path.exists():
        with gzip.open(path, "rt") as stream:
            kept = [x for x in stream if Record.from_json(x).problem != records[0].problem]
    text = "".join([*kept, *(r.to_json() + "\n" for r in records)])
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    """Record the shapes and add them to the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--rounds", type=int, default=8, help="samples of each schedule, plus one")
    parser.add_argument("--seconds", type=float, default=120.0, help="a shape, at least 3 rounds")
    parser.add_argument("--about", default="", help="this CPU, for people (default: as before)")
    args = parser.parse_args()
    recorded_hosts.keep(seen_host(), args.about)
    name = f"host_{host_device().name}_exhaustive_{args.clock}.jsonl.gz"
    for shape in args.shapes:
        records = record(problem_of(shape), args.clock, args.rounds, args.seconds)
        replace_rows(FOLDER / name, records)
        best = min(r.measurement.median_s for r in records)
        print(f"{shape}: {len(records)} schedules, best {best * 1e3:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
