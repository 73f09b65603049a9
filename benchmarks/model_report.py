"""How good the models are: tables of predictions against published and measured figures.

    python benchmarks/model_report.py            # writes benchmarks/results/model.jsonl and .md
    python benchmarks/model_report.py figure10   # one table to the terminal

figure10: gains of pipelining that the model predicts for an A100, beside figure 10 of ALCOP
(MLSys'23). best_in_k: the best of the first k schedules in a model's order, as a share of the best
of all, over exhaustively measured spaces (tuning/recorded). This script measures nothing. No
constant of the GPU model was fitted to figure 10; six recordings were looked at for the host model
(LOOKED_AT), so the mean over the others is given too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxpipe.keys import problem_from_key
from jaxpipe.model import alcop, bottleneck
from jaxpipe.model import host as host_model
from jaxpipe.model.table import concatenate, filled, table_of
from jaxpipe.problem import Layout, Matmul, Problem
from jaxpipe.records import Record
from jaxpipe.space import paper_space
from jaxpipe.target import DEVICES, Device, HostDevice, host_device
from jaxpipe.version import VERSION

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results"
RECORDED = HERE.parent / "tuning" / "recorded"
COMMAND = "python benchmarks/model_report.py"
Row = dict[str, Any]
Floats = NDArray[np.float64]


# ------------------------------------------------------------------ figure 10
@dataclass(frozen=True, slots=True)
class Published:
    """One operator of ALCOP's figure 10: batch, m, n, k and the bars, as gains over TVM.

    full: all of ALCOP. single_level: without register pipelining. two_stages: two shared stages
    only. Read off the figure to 0.01; only RN50_FC's shape is stated in the paper, the others are
    inferred from the artifact's list of shapes.
    """

    name: str
    sizes: tuple[int, int, int, int]
    full: float
    single_level: float
    two_stages: float

    @property
    def problem(self) -> Matmul:
        """float16 operands, rhs transposed, float32 results, as the artifact computes."""
        batch, m, n, k = self.sizes
        shape = (batch,) if batch > 1 else ()
        nt = Layout(transposed=True)
        return Matmul(m, n, k, shape, "float16", "float32", rhs=nt)


FIGURE_10 = (
    Published("MM_Square_1k", (1, 1024, 1024, 1024), 1.32, 1.23, 1.12),
    Published("MM_Square_2k", (1, 2048, 2048, 2048), 1.31, 1.26, 1.26),
    Published("MM_Square_4k", (1, 4096, 4096, 4096), 1.34, 1.23, 1.15),
    Published("MM_BERT_MHA1", (1, 512, 768, 768), 1.28, 1.26, 0.89),
    Published("MM_BERT_MHA2", (1, 512, 2304, 768), 1.23, 1.16, 1.09),
    Published("MM_BERT_FC1", (1, 512, 3072, 768), 1.17, 1.02, 0.93),
    Published("MM_BERT_FC2", (1, 512, 768, 3072), 1.69, 1.30, 0.98),
    Published("MM_RN50_FC", (1, 1024, 64, 2048), 1.73, 1.26, 0.83),
    Published("BMM_BERT_QK", (12, 512, 512, 64), 1.08, 1.01, 1.01),
    Published("BMM_BERT_SV", (12, 512, 64, 512), 1.19, 1.15, 0.88),
    Published("BMM_GPT2_QK", (12, 1024, 1024, 64), 1.01, 1.01, 1.01),
    Published("BMM_GPT2_SV", (12, 1024, 64, 1024), 1.54, 1.26, 0.87),
)  # fmt: skip
# MM_Conv1x1_1 and _2 of the figure are two of these; which is not published.
CONV_1X1 = (
    (200704, 64, 64), (200704, 64, 256), (200704, 256, 64), (50176, 128, 64), (50176, 128, 256),
    (50176, 128, 512), (50176, 512, 128), (50176, 512, 256), (12544, 256, 128), (12544, 256, 512),
    (12544, 256, 1024), (12544, 1024, 256), (12544, 1024, 512), (3136, 512, 256), (3136, 512, 1024),
    (3136, 512, 2048), (3136, 2048, 512), (3136, 2048, 1024),
)  # fmt: skip
CONV_1X1_BARS = ((1.09, 1.07, 0.97), (1.08, 1.07, 1.07))
ALL_ROWS = 1 << 20  # grid x runs over all tile rows first, as in the artifact


def figure_10() -> Iterator[Row]:
    """A row an operator, then a summary with the rank correlations."""
    gains = {op.name: predicted_gains(op.problem) for op in FIGURE_10}
    for op in FIGURE_10:
        full, single, two = gains[op.name]
        yield {
            "table": "figure10", "operator": op.name, "sizes": op.sizes,
            "predicted": {"full": full, "single_level": single, "two_stages": two},
            "published": {"full": op.full, "single_level": op.single_level,
                          "two_stages": op.two_stages},
        }  # fmt: skip
    predicted = np.array([gains[op.name] for op in FIGURE_10])
    published = np.array([(op.full, op.single_level, op.two_stages) for op in FIGURE_10])
    low, high = conv_1x1_range(predicted[:, 0], published[:, 0])
    yield {
        "table": "figure10_summary", "operators": len(FIGURE_10),
        "spearman_full": spearman(predicted[:, 0], published[:, 0]),
        "spearman_single_level": spearman(predicted[:, 1], published[:, 1]),
        "spearman_register_gain": spearman(
            predicted[:, 0] / predicted[:, 1], published[:, 0] / published[:, 1]
        ),
        "geomean_predicted": geomeans(predicted), "geomean_published": geomeans(published),
        "spearman_full_with_any_two_conv1x1": [low, high],
    }  # fmt: skip


def predicted_gains(problem: Matmul) -> tuple[float, float, float]:
    """Best of the published space without stages over: all; one register stage; two stages.

    Operands are warm: the artifact times 200 runs of one kernel in a row. The third is of our
    kernels, which wait before they issue; the artifact's wait for the copy that they just issued,
    so that two stages overlap nothing there (published: 1.01 on average).
    """
    table = artifact_space(problem)
    seconds = alcop.predict_many(problem, table, DEVICES["a100"], is_warm=True)
    smem, reg = table["smem_stages"], table["reg_stages"]

    def best(keep: NDArray[np.bool_]) -> float:
        return float(seconds[keep].min())

    base = best((smem == 1) & (reg == 1))
    return (
        base / best(np.ones_like(smem, dtype=bool)),
        base / best(reg == 1),
        base / best((smem <= 2) & (reg == 1)),
    )


def artifact_space(problem: Matmul) -> Any:
    """The published space with the stages of its baselines too, cut to what divides the problem."""
    table = paper_space(problem, "bmm" if problem.batch else "dense").table
    plain = filled(table.kind, {**table.columns, "smem_stages": np.ones_like(table["smem_stages"])})
    both = concatenate([plain, table])
    walk = np.full(len(both), ALL_ROWS)
    both = filled(both.kind, {**both.columns, "raster_group": walk})
    keep = (problem.m % both["block_m"] == 0) & (problem.n % both["block_n"] == 0)
    keep &= problem.k % both["block_k"] == 0
    keep &= both["smem_stages"] <= problem.k // both["block_k"]
    keep &= both["reg_stages"] <= both["block_k"] // 16
    return both.take(keep)


def conv_1x1_range(predicted: Floats, published: Floats) -> tuple[float, float]:
    """Least and largest correlation when any two 1x1 convolutions stand for the unknown two."""
    gains = [predicted_gains(Matmul(m, n, k, (), "float16", "float32", rhs=Layout(True)))[0]
             for m, n, k in CONV_1X1]  # fmt: skip
    bars = np.append(published, [bar[0] for bar in CONV_1X1_BARS])
    found = [
        spearman(np.append(predicted, [a, b]), bars)
        for i, a in enumerate(gains) for j, b in enumerate(gains) if i != j
    ]  # fmt: skip
    return min(found), max(found)


# ------------------------------------------------------------------ measured spaces
Predict = Callable[[Problem, Any, Any], Floats]
TOP = (1, 10, 50)
TIE_ORDERS = 50
# Hosts with recordings: a KVM guest of an EPYC (family 25, model 17), 2 cores; caches of /sys, the
# clock from csrc/host's burst of multiply-adds (118 GFLOP/s a core), rates typical of the ISA.
HOSTS = {
    h.name: h
    for h in (HostDevice("amd_f25m17_2t", "avx512_bf16", 2, 3.69e9, 32 << 10, 1 << 20, 32 << 20),)
}
# Recordings that were looked at when model/host.py was made: READ_RUN_S, RESULT_RUN_S and theirs
# were set from the first two, the others showed that lines of lhs are evicted from few sets of L1.
LOOKED_AT = (
    "matmul 1x3072x768 nn float32->float32 float32",
    "matmul 12x512x512x64 nn float32->float32 float32",
    "matmul 512x768x3072 nn float32->float32 float32",
    "matmul 128x768x3072 nn float32->float32 float32",
    "matmul 512x1024x1024 nn float32->float32 float32",
    "matmul 128x1024x4096 nn float32->float32 float32",
)
CLOCKS = {"wall": "wall clock, alone on the machine", "cpu": "processor time of one thread"}


def best_in_k(paths: Iterable[pathlib.Path]) -> Iterator[Row]:
    """A row a recorded problem: how far the first 1, 10 and 50 get; then geometric means."""
    rows = []
    for (device_name, clock, key), records in grouped(paths).items():
        problem, device = problem_from_key(key), device_of(device_name)
        seconds = np.array([quiet_s(r) for r in records])
        table = table_of([as_run(r.schedule, clock) for r in records])
        row: Row = {
            "table": "best_in_k", "device": device_name, "clock": clock, "problem": key,
            "schedules": len(records), "best_s": float(seconds.min()),
            "median_s": float(np.median(seconds)), "xla_s": xla_s(records),
        }  # fmt: skip
        for name, predict in models_of(device):
            row[name] = scores(predict(problem, table, device), seconds)
        rows.append(row)
        yield row
    yield from summaries(rows)


def as_run(schedule: Any, clock: str) -> Any:
    """The schedule as it was timed: processor time is taken on one thread."""
    return replace(schedule, threads=1) if clock == "cpu" else schedule


def models_of(device: Device | HostDevice) -> tuple[tuple[str, Predict], ...]:
    """The models that are compared on this kind of device."""
    ours: Predict = (
        host_model.predict_many if isinstance(device, HostDevice) else alcop.predict_many
    )
    return (("analytical", ours), ("bottleneck", bottleneck.predict_many))


def scores(predicted: Floats, seconds: Floats) -> Row:
    """Best of the first k over best of all, in expectation over the order of ties; correlation."""
    best = float(seconds.min())
    rng = np.random.default_rng(0)
    shares: dict[int, list[float]] = {k: [] for k in TOP}
    for _ in range(TIE_ORDERS):
        shuffled = rng.permutation(len(seconds))
        order = shuffled[np.argsort(predicted[shuffled], kind="stable")]
        for k in TOP:
            shares[k].append(best / float(seconds[order[:k]].min()))
    found = {f"top_{k}": float(np.mean(shares[k])) for k in TOP}
    return {**found, "spearman": spearman(predicted, seconds),
            "ratio": float(np.median(predicted / seconds))}  # fmt: skip


def summaries(rows: list[Row]) -> Iterator[Row]:
    """Geometric means over the problems of each device, and over those no constant was set from."""
    by_device: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_device[row["device"], row["clock"]].append(row)
    for (device_name, clock), group in by_device.items():
        held_out = [r for r in group if r["problem"] not in LOOKED_AT]
        for kept, name in ((group, "all"), (held_out, "held out")):
            if kept:
                yield _summary(device_name, clock, name, kept)


def _summary(device_name: str, clock: str, kept: str, group: list[Row]) -> Row:
    row: Row = {
        "table": "best_in_k_summary", "device": device_name, "clock": clock, "kept": kept,
        "problems": len(group), "schedules": sum(r["schedules"] for r in group),
    }  # fmt: skip
    for model in ("analytical", "bottleneck"):
        shares = {k: [r[model][f"top_{k}"] for r in group] for k in TOP}
        row[model] = {f"top_{k}": float(np.exp(np.mean(np.log(shares[k])))) for k in TOP}
    return row


def grouped(paths: Iterable[pathlib.Path]) -> dict[tuple[str, str, str], list[Record]]:
    """Successful records by device, clock and problem; the last of a schedule counts."""
    found: dict[tuple[str, str, str], dict[Any, Record]] = defaultdict(dict)
    for path in paths:
        with gzip.open(path, "rt") as lines:
            for line in lines:
                record = Record.from_json(line)
                if record.measurement.status == "ok":
                    clock = dict(record.versions).get("clock", "wall")
                    found[record.device, clock, record.problem][record.schedule] = record
    return {key: list(records.values()) for key, records in found.items()}


def quiet_s(record: Record) -> float:
    """Median of the samples, of those blocks in which the baseline was not disturbed.

    A virtual machine loses a core for a while now and then: in such a block XLA, which takes part
    in every block, is slow too. Blocks above 1.25 times its lower quartile are left out. Records
    of processor time have no baseline; all their schedules took turns, so that drift fell on all.
    """
    samples = np.array(record.measurement.samples_s)
    baseline = np.array(record.measurement.baseline_s)
    if len(baseline) != len(samples):
        return float(np.median(samples))
    quiet = baseline <= 1.25 * np.quantile(baseline, 0.25)
    return float(np.median(samples[quiet]))


def xla_s(records: list[Record]) -> float | None:
    """Lower quartile of XLA's samples over all records; None without any."""
    samples = [s for r in records for s in r.measurement.baseline_s]
    return float(np.quantile(samples, 0.25)) if samples else None


def device_of(name: str) -> Device | HostDevice:
    """The row of a recorded device; this machine's for a recorded host of the same name."""
    if name in DEVICES:
        return DEVICES[name]
    return host_named(name)


def host_named(name: str) -> HostDevice:
    """A host that was recorded, or this machine under its own name."""
    if name in HOSTS:
        return HOSTS[name]
    here = host_device()
    if here.name == name:
        return here
    raise SystemExit(f"records of {name}: known are {', '.join(HOSTS)}, this is {here.name}")


# ------------------------------------------------------------------ figures and text
def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; ties share their mean rank. 0 where one side is constant."""
    x, y = (ranks(v) - ranks(v).mean() for v in (a, b))
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else 0.0


def ranks(values: Floats) -> Floats:
    """Mean rank of every value."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def geomeans(columns: Floats) -> list[float]:
    """Geometric mean of each column."""
    return [float(x) for x in np.exp(np.log(columns).mean(axis=0))]


def markdown(rows: list[Row]) -> Iterator[str]:
    """The tables of `rows` for people."""
    yield "# How good the models are\n"
    yield f"Written by `{COMMAND}` from `model.jsonl`; do not edit.\n"
    yield from _figure_10_text(rows)
    yield from _best_in_k_text(rows)


def _figure_10_text(rows: list[Row]) -> Iterator[str]:
    yield "\n## ALCOP's figure 10: gains of pipelining on an A100, predicted (published)\n"
    yield "| operator | all of it | one register stage | two shared stages |\n|---|---|---|---|"
    for row in (r for r in rows if r["table"] == "figure10"):
        p, q = row["predicted"], row["published"]
        cells = " | ".join(f"{p[k]:.2f} ({q[k]:.2f})" for k in p)
        yield f"| {row['operator']} {'x'.join(map(str, row['sizes']))} | {cells} |"
    for row in (r for r in rows if r["table"] == "figure10_summary"):
        low, high = row["spearman_full_with_any_two_conv1x1"]
        yield (
            f"\nSpearman over {row['operators']} operators: all of it {row['spearman_full']:.2f}, "
            f"one register stage {row['spearman_single_level']:.2f}, gain of register stages "
            f"{row['spearman_register_gain']:.2f}. With any two of the {len(CONV_1X1)} candidates "
            f"for the two 1x1 convolutions, whose shapes are not published: {low:.2f} to "
            f"{high:.2f}. Gains are over-predicted: geometric mean "
            f"{row['geomean_predicted'][0]:.2f} against {row['geomean_published'][0]:.2f}.\n"
        )


def _best_in_k_text(rows: list[Row]) -> Iterator[str]:
    measured = [r for r in rows if r["table"] == "best_in_k"]
    if not measured:
        return
    yield "\n## Best of the first k schedules, as a share of the best of all (measured)\n"
    yield "First 1 / 10 / 50, in per cent.\n"
    yield "| device, problem | schedules | best | XLA | analytical | bottleneck |"
    yield "|---|---|---|---|---|---|"
    for r in measured:
        cells = " | ".join(_shares(r[m]) for m in ("analytical", "bottleneck"))
        xla = f"{1e3 * r['xla_s']:.3g} ms" if r["xla_s"] else ""
        yield (
            f"| {r['device']}, {r['problem']} | {r['schedules']} | {1e3 * r['best_s']:.3g} ms | "
            f"{xla} | {cells} |"
        )
    for r in (r for r in rows if r["table"] == "best_in_k_summary"):
        cells = " | ".join(_shares(r[m]) for m in ("analytical", "bottleneck"))
        mean = (
            f"{r['device']} ({CLOCKS[r['clock']]}), geometric mean of {r['problems']} ({r['kept']})"
        )
        yield f"| **{mean}** | {r['schedules']} | | | {cells} |"


def _shares(score: Row) -> str:
    return " / ".join(f"{100 * score[f'top_{k}']:.1f}" for k in TOP)


TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "figure10": figure_10,
    "best_in_k": lambda: best_in_k(sorted(RECORDED.glob("*.jsonl.gz"))),
}


def main() -> None:
    """Print the named tables, or write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=(*TABLES, []), help="default: all, to files")
    parser.add_argument("--recorded", type=pathlib.Path, nargs="*", help="other recordings")
    args = parser.parse_args()
    tables = dict(TABLES)
    if args.recorded:
        tables["best_in_k"] = lambda: best_in_k(args.recorded)
    rows = [row for name in args.tables or tables for row in tables[name]()]
    text = "\n".join(markdown(rows)) + "\n"
    if args.tables or args.recorded:
        print(text)
        return
    RESULTS.mkdir(exist_ok=True)
    common = {"kind": "model", "command": COMMAND, "versions": {"jaxpipe": VERSION}}
    lines = [json.dumps({**common, **row}, sort_keys=True) + "\n" for row in rows]
    (RESULTS / "model.jsonl").write_text("".join(lines))
    (RESULTS / "model.md").write_text(text)


if __name__ == "__main__":
    main()
