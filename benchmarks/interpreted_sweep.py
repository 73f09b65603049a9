#!/usr/bin/env python3
"""Run drawn kernels of both families in the PTX interpreter: errors, hazards, bank conflicts.

    python benchmarks/interpreted_sweep.py sm_80     # 500 pairs, results/interpreted_sm80.jsonl
    python benchmarks/interpreted_sweep.py sm_90a    # 300 points, results/interpreted_sm90a.jsonl

Nothing is timed and no GPU is needed. A row is one drawn (problem, schedule), run in every
adversarial mode on random operands and compared with float64. Conflicts are extra passes over the
banks of shared memory: of accesses that serve operands, and of the staging of results. The first
row has the totals. The exit code is 1 when a pair has a hazard, an error beyond its limit, or a
conflict on an operand path that its swizzle promises to avoid.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxpipe import compiler  # noqa: E402
from jaxpipe.codegen.fragment_text import row_bytes  # noqa: E402
from jaxpipe.codegen.fragments import reader  # noqa: E402
from jaxpipe.codegen.swizzle import replays  # noqa: E402
from jaxpipe.dtypes import DTYPES  # noqa: E402
from jaxpipe.ir.visit import buffers  # noqa: E402
from jaxpipe.problem import Problem  # noqa: E402
from jaxpipe.ptx.report import Report  # noqa: E402
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode  # noqa: E402
from jaxpipe.runtime.interpreted import check  # noqa: E402
from jaxpipe.runtime.reference import tolerance  # noqa: E402
from jaxpipe.schedule import GpuSchedule  # noqa: E402
from jaxpipe.target import arch  # noqa: E402
from jaxpipe.version import VERSION  # noqa: E402
from tests.codegen.hopper_points import points  # noqa: E402
from tests.drawn import draw_sm80  # noqa: E402

COUNTS = {"sm_80": 500, "sm_90a": 300}


@dataclass(frozen=True)
class Pair:
    """One drawn pair and what its runs showed; conflicts and wavefronts are of the first mode."""

    seed: int
    problem: str
    schedule: str
    error: float
    limit: float
    hazards: int
    replays: int  # passes that the swizzle promises: 1 is no conflict, 0 no promise
    worst_replays: float
    operand_conflicts: int
    staging_conflicts: int
    staging_wavefronts: int

    @property
    def is_right(self) -> bool:
        """No hazard, no error beyond the limit, no broken promise."""
        kept = not self.replays or self.worst_replays <= self.replays
        return self.hazards == 0 and self.error <= self.limit and kept


def drawn(target: str, first: int, count: int) -> Iterator[tuple[int, Problem, GpuSchedule]]:
    """Seeds with their problems and schedules."""
    if target == "sm_80":
        yield from ((seed, *draw_sm80(seed)) for seed in range(first, first + count))
    else:
        yield from ((p.seed, p.problem, p.schedule) for p in points(count, first))


def promised(problem: Problem, schedule: GpuSchedule, target: str) -> int:
    """Passes that accesses of operands need at most; 0 where the schedule promises nothing.

    The Hopper family always stores operands as wgmma reads them.
    """
    if schedule.family == "hopper":
        return 1
    if not schedule.swizzle:
        return 0
    _, nest = compiler.lower(problem, schedule, arch(target))[0].stages[-1]
    shared = [b for b in buffers(nest).values() if b.scope == "shared"]
    size = DTYPES[problem.dtype].size_bytes
    return max((replays(row_bytes(b), reader(b.axes[-1] == "k", size)) for b in shared), default=1)


def worst_replays(report: Report) -> float:
    """The most passes per needed pass of an access that serves operands."""
    sites = (s for s in report.shared if s.phase == "operand" and s.ideal_wavefronts)
    return max((s.wavefronts / s.ideal_wavefronts for s in sites), default=1.0)


def run(
    seed: int, problem: Problem, schedule: GpuSchedule, target: str, modes: tuple[Mode, ...]
) -> Pair:
    """The pair's kernel in every mode."""
    compiled = compiler.compile_kernel(problem, schedule, target)
    checked = [check(compiled, mode, seed) for mode in modes]
    report = checked[0].report
    staging = [s for s in report.shared if s.phase == "staging"]
    return Pair(
        seed, str(problem), str(schedule), max(c.error for c in checked), tolerance(problem),
        sum(len(c.report.hazards) for c in checked), promised(problem, schedule, target),
        worst_replays(report), report.conflicts_of("operand"), report.conflicts_of("staging"),
        sum(s.ideal_wavefronts for s in staging),
    )  # fmt: skip


def totals(target: str, pairs: list[Pair], command: str) -> dict[str, object]:
    """The first row of the file."""
    held = [p for p in pairs if p.replays]
    return {
        "kind": "interpreted_totals", "device": f"{target} (interpreted, not run)",
        "pairs": len(pairs), "right": sum(p.is_right for p in pairs),
        "modes": [f"{m.landing}-{m.order}" for m in ADVERSARIAL_MODES],
        "hazards": sum(p.hazards for p in pairs),
        "worst_error_of_limit": max(p.error / p.limit if p.limit else p.error for p in pairs),
        "pairs_with_promise": len(held),
        "free_of_operand_conflicts": sum(p.operand_conflicts == 0 for p in held),
        "promised_two_way": sum(p.replays == 2 for p in held),
        "staging_conflicts": sum(p.staging_conflicts for p in pairs),
        "staging_wavefronts": sum(p.staging_wavefronts for p in pairs),
        "command": command, "versions": {"jaxpipe": VERSION},
    }  # fmt: skip


def main() -> int:
    """Write the rows; returns 1 when a pair is not right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(COUNTS))
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=0, help="pairs (default: all)")
    parser.add_argument("--out", type=pathlib.Path, help="default: benchmarks/results")
    args = parser.parse_args()
    count = args.count or COUNTS[args.target]
    pairs = []
    for point in drawn(args.target, args.first, count):
        pairs.append(run(*point, args.target, ADVERSARIAL_MODES))
        if not pairs[-1].is_right:
            print(f"NOT RIGHT: {pairs[-1]}", flush=True)
    out = args.out or ROOT / f"benchmarks/results/interpreted_{args.target.replace('_', '')}.jsonl"
    first = totals(args.target, pairs, f"python benchmarks/interpreted_sweep.py {args.target}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w") as file:
        for row in (first, *map(asdict, pairs)):
            file.write(json.dumps(row) + "\n")
    print(json.dumps(first, indent=1))
    return int(first["right"] != len(pairs))


if __name__ == "__main__":
    sys.exit(main())
