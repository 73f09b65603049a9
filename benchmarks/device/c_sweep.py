#!/usr/bin/env python3
"""(c) Exhaustive sweep of the spaces of the ALCOP paper, to judge models and samplers by.

    python benchmarks/device/c_sweep.py [--dry-run] [--only TEXT] [--limit N]

Kernels are compiled by a pool of processes and measured one after the other through the driver
alone (graph replay between events). Writes sweep.jsonl, one jaxpipe record a line, in random order;
goes on where an earlier file stopped. Commit the rows to tuning/recorded/.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import pathlib
import random
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.device import campaign
from jaxpipe import legality, settings
from jaxpipe.compiler import compile_kernel, target_arch
from jaxpipe.errors import JaxpipeError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Matmul, Problem
from jaxpipe.records import Measurement, Record
from jaxpipe.runtime.direct import DirectBench
from jaxpipe.schedule import GpuSchedule
from jaxpipe.space import paper_space

# MM_RN50_FC, MM_BERT_FC1, MM_BERT_QKV, BMM_BERT_QK and BMM_BERT_SV of the paper's evaluation.
PROBLEMS: tuple[tuple[str, Matmul], ...] = (
    ("dense", Matmul(1024, 64, 2048, dtype="float16")),
    ("dense", Matmul(512, 3072, 768, dtype="float16")),
    ("dense", Matmul(512, 768, 3072, dtype="float16")),
    ("bmm", Matmul(512, 512, 64, batch=(12,), dtype="float16")),
    ("bmm", Matmul(512, 64, 512, batch=(12,), dtype="float16")),
)


def candidates(run: campaign.Campaign, operator: str, problem: Matmul) -> list[GpuSchedule]:
    """The paper's space in random order, without what is illegal here."""
    space = paper_space(problem, operator)  # type: ignore[arg-type]
    arch = target_arch(run.gpu)
    schedules = [space.schedule(i) for i in range(len(space))]
    legal = [s for s in schedules if not legality.check(s, problem, arch)]
    random.Random(0).shuffle(legal)
    return legal


def compile_one(problem: Problem, arch: str, schedule: GpuSchedule) -> CompiledKernel | str:
    """In a child process: the kernel, or why there is none."""
    try:
        return compile_kernel(problem, schedule, arch)
    except JaxpipeError as error:
        return str(error)


def done(path: pathlib.Path) -> set[tuple[str, str]]:
    """(problem, schedule) of the rows that an earlier run wrote."""
    if not path.exists():
        return set()
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    return {(r.problem, str(r.schedule)) for r in records}


def compiled(
    run: campaign.Campaign, problem: Problem, todo: list[GpuSchedule]
) -> Iterator[tuple[GpuSchedule, CompiledKernel | str]]:
    """Kernels in the order of `todo`, compiled ahead by all cores."""
    jobs = int(str(settings.get("JAXPIPE_COMPILE_JOBS")))
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context) as pool:
        work = functools.partial(compile_one, problem, run.gpu.arch)
        yield from zip(todo, pool.map(work, todo, chunksize=4), strict=True)
        pool.shutdown(cancel_futures=True)


def sweep(run: campaign.Campaign, operator: str, problem: Matmul, limit: int) -> int:
    """Measure until the time or the space is at its end; the number of rows."""
    path = run.out / "sweep.jsonl"
    known = done(path)
    space = candidates(run, operator, problem)
    todo = [s for s in space if (problem.key, str(s)) not in known][: limit or None]
    print(f"{problem}: {len(space)} legal schedules, {len(todo)} to measure", flush=True)
    bench = None if run.is_dry else DirectBench(problem)
    count = 0
    for schedule, kernel in compiled(run, problem, todo):
        if run.left_s < 0:
            break
        if isinstance(kernel, str):
            measured = Measurement("compile_failed", reason=kernel)
        elif bench is None:
            print(f"  {schedule}: {len(kernel.cubin)} bytes, {kernel.compile_s:.2f} s", flush=True)
            continue
        else:
            measured = bench.measure(kernel)
        record = Record(problem.key, "cuda", run.gpu.name, schedule, measured)
        run.out.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(record.to_json() + "\n")
        count += 1
    return count


def main() -> int:
    """Returns 0; a candidate that fails is a row."""
    parser = campaign.parser(__doc__, 560)
    parser.add_argument("--only", default="", help="problems whose text holds this")
    parser.add_argument("--limit", type=int, default=0, help="schedules a problem (0: all)")
    args = parser.parse_args()
    run = campaign.begin(args)
    limit = args.limit or (4 if args.dry_run else 0)
    for operator, problem in PROBLEMS:
        if args.only in str(problem) and run.left_s > 0:
            print(f"{problem}: {sweep(run, operator, problem, limit)} rows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
