"""How good the models are: tables of predictions against published and measured figures.

    python benchmarks/model_report.py            # writes benchmarks/results/model.jsonl and .md
    python benchmarks/model_report.py figure10   # one table to the terminal

figure10: gains of pipelining that the model predicts for an A100, beside figure 10 of ALCOP
(MLSys'23). best_in_k: the best of the first k schedules in a model's order, as a share of the best
of all, over exhaustively measured spaces (tuning/recorded). This script measures nothing. No
constant of the GPU model was fitted to figure 10; six recordings of one CPU were looked at for the
host model (LOOKED_AT), so the mean over the others is given too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = pathlib.Path(__file__).parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from benchmarks.figure_10 import CONV_1X1, figure_10  # noqa: E402
from benchmarks.ranks import spearman  # noqa: E402
from jaxpipe.keys import problem_from_key  # noqa: E402
from jaxpipe.model import alcop, bottleneck, host_rule  # noqa: E402
from jaxpipe.model import host as host_model  # noqa: E402
from jaxpipe.model.table import table_of  # noqa: E402
from jaxpipe.problem import Problem  # noqa: E402
from jaxpipe.records import Record  # noqa: E402
from jaxpipe.target import DEVICES, Device, HostDevice  # noqa: E402
from jaxpipe.version import VERSION  # noqa: E402
from tuning import recorded_hosts  # noqa: E402

RESULTS = HERE / "results"
RECORDED = HERE.parent / "tuning" / "recorded"
COMMAND = "python benchmarks/model_report.py"
Row = dict[str, Any]
Floats = NDArray[np.float64]


# ------------------------------------------------------------------ measured spaces
Predict = Callable[[Problem, Any, Any], Floats]
TOP = (1, 10, 50)
TIE_ORDERS = 50
# Recordings that were looked at when model/host.py was made: READ_RUN_S, RESULT_RUN_S and theirs
# were set from the first two, the others showed that lines of lhs are evicted from few sets of L1.
LOOKED_AT_ON = "amd_f25m17_2t"
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
            "table": "best_in_k", "device": device_name, "cpu": recorded_hosts.about(device_name),
            "clock": clock, "problem": key,
            "schedules": len(records), "best_s": float(seconds.min()),
            "median_s": float(np.median(seconds)), "xla_s": xla_s(records),
            "error": float(np.median([error(r) for r in records])),
            "rule": rule_share(problem, device, records, seconds),
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
        held_out = [
            r for r in group if device_name != LOOKED_AT_ON or r["problem"] not in LOOKED_AT
        ]
        for kept, name in ((group, "all"), (held_out, "held out")):
            if kept:
                yield _summary(device_name, clock, name, kept)


def geomean(shares: list[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return float(np.exp(np.mean(np.log(shares)))) if shares else None


def _summary(device_name: str, clock: str, kept: str, group: list[Row]) -> Row:
    row: Row = {
        "table": "best_in_k_summary", "device": device_name, "cpu": group[0]["cpu"],
        "clock": clock, "kept": kept,
        "problems": len(group), "schedules": sum(r["schedules"] for r in group),
        "rule": geomean([r["rule"] for r in group if r["rule"]]),
    }  # fmt: skip
    for model in ("analytical", "bottleneck"):
        shares = {k: [r[model][f"top_{k}"] for r in group] for k in TOP}
        row[model] = {f"top_{k}": geomean(shares[k]) for k in TOP}
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


def rule_share(
    problem: Problem, device: Device | HostDevice, records: list[Record], seconds: Floats
) -> float | None:
    """Best of all over the rule's pick (model/host_rule.py), where that was recorded."""
    if not isinstance(device, HostDevice):
        return None
    rule = host_rule.rule(problem, device)
    found = [s for r, s in zip(records, seconds, strict=True) if r.schedule == rule]
    return float(seconds.min() / found[0]) if found else None


def error(record: Record) -> float:
    """Relative standard error of the median of a record's samples."""
    low, middle, high = np.quantile(record.measurement.samples_s, [0.25, 0.5, 0.75])
    count = len(record.measurement.samples_s)
    return float(1.25 * (high - low) / 1.35 / middle / np.sqrt(count))


def xla_s(records: list[Record]) -> float | None:
    """Lower quartile of XLA's samples over all records; None without any."""
    samples = [s for r in records for s in r.measurement.baseline_s]
    return float(np.quantile(samples, 0.25)) if samples else None


def device_of(name: str) -> Device | HostDevice:
    """The row of a recorded device."""
    return DEVICES[name] if name in DEVICES else recorded_hosts.named(name)


# ------------------------------------------------------------------ text
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
    cpus = dict.fromkeys((r["device"], r["cpu"]) for r in measured)
    named = "; ".join(f"{device}: {cpu}" for device, cpu in cpus)
    yield (
        "First 1 / 10 / 50, in per cent. rule: what is chosen untuned, where it was recorded. "
        f"{named}.\n"
    )
    yield "| device, problem | schedules | best | XLA | analytical | bottleneck | rule |"
    yield "|---|---|---|---|---|---|---|"
    for r in measured:
        cells = " | ".join(_shares(r[m]) for m in ("analytical", "bottleneck"))
        xla = f"{1e3 * r['xla_s']:.3g} ms" if r["xla_s"] else ""
        yield (
            f"| {r['device']}, {r['problem']} | {r['schedules']} | {1e3 * r['best_s']:.3g} ms | "
            f"{xla} | {cells} | {_rule(r['rule'])} |"
        )
    for r in (r for r in rows if r["table"] == "best_in_k_summary"):
        cells = " | ".join(_shares(r[m]) for m in ("analytical", "bottleneck"))
        mean = (
            f"{r['device']} ({CLOCKS[r['clock']]}), geometric mean of {r['problems']} ({r['kept']})"
        )
        yield f"| **{mean}** | {r['schedules']} | | | {cells} | {_rule(r['rule'])} |"


def _rule(share: float | None) -> str:
    return f"{100 * share:.1f}" if share else ""


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
