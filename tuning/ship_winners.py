#!/usr/bin/env python3
"""Decide which winners jaxpipe ships for this CPU: python tuning/ship_winners.py --table T.json

Candidates are the winners of tables that tuning wrote (--table) and the best schedules of this
CPU's exhaustive recordings. Each is measured anew, block by block beside what the rule chooses: a
winner was picked because it looked fast, so the measurements that it won by count for nothing here.
It ships where the rule's time over its own is above 1.01 with a confidence of 99 % (an interval of
the median by order statistics). Writes jaxpipe/data/tuned/<device>.json, and every comparison, won
or lost, to benchmarks/results/shipped.jsonl. It needs the machine alone. --neighbours compares
what ships on problems nearby, which it serves too where nothing nearer is known (choose.py).
--halves DEVICE asks the recordings of a CPU that is not at hand: how far the best schedule by half
of the samples beats the rule's pick on the other half, over random halves (least: one in ten).
"""

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import host_sets
import numpy as np
import recorded_hosts
from scipy.stats import binom

from jaxpipe import tuned
from jaxpipe.choose import NEAREST_OCTAVES
from jaxpipe.epilogue import Epilogue
from jaxpipe.keys import problem_from_key
from jaxpipe.model import host_rule
from jaxpipe.records import Measurement, Record
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import Plan
from jaxpipe.schedule import Schedule
from jaxpipe.target import host_device
from jaxpipe.tune.finals import TIE
from jaxpipe.tune.told import current_versions

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "shipped.jsonl"
PLAN = Plan(blocks=61, sample_s=0.01)
CONFIDENCE, HALVES = 0.99, 40
COMMAND = "python tuning/ship_winners.py"


def candidates(tables: list[pathlib.Path], device: str) -> dict[tuple[str, str], Schedule]:
    """Winners by (problem, where they were found)."""
    found: dict[tuple[str, str], Schedule] = {}
    for (on, key), records in host_sets.host_records().items():
        if on == device:
            best = min(records, key=lambda r: r.measurement.median_s)
            found[key, f"tuning/recorded/host_{device}_exhaustive_wall.jsonl.gz"] = best.schedule
    for path in tables:
        for record in tuned.Table.load(path).rows.values():
            if (record.device, record.executor) == (device, "host"):
                found[record.problem, f"live tuning, {path.name}"] = record.schedule
    return found


def neighbours(device: str) -> dict[tuple[str, str], Schedule]:
    """What ships, for half of the rows, a third more columns, and with a bias and an activation."""
    found: dict[tuple[str, str], Schedule] = {}
    for record in tuned.read(tuned.shipped_path(device)).rows.values():
        p = problem_from_key(record.problem)
        fused = Epilogue(bias="column", activation="gelu_tanh")
        near = replace(p, m=p.m // 2), replace(p, n=p.n * 4 // 3), replace(p, epilogue=fused)
        served = (q.key for q in near if tuned.octaves_between(p, q) <= NEAREST_OCTAVES)
        found |= {(key, f"neighbour of {record.problem}"): record.schedule for key in served}
    return found


def least_gain(ratios: list[float]) -> float:
    """What the median of `ratios` is above with CONFIDENCE: an order statistic (0.0: too few)."""
    rank = int(binom.ppf(1 - CONFIDENCE, len(ratios), 0.5)) - 1
    return sorted(ratios)[rank] if rank >= 0 else 0.0


def compare(key: str, winner: Schedule, rule: Schedule) -> tuple[Measurement, Measurement]:
    """Both schedules beside XLA, in the same blocks."""
    first, second = measure(problem_from_key(key), [winner, rule], executor="host", plan=PLAN)
    return first, second


def row_of(key: str, found: str, winner: Schedule, rule: Schedule) -> dict:
    """One comparison: samples of both, and whether the winner ships."""
    ours, other = compare(key, winner, rule)
    ratios = [b / a for a, b in zip(ours.samples_s, other.samples_s, strict=True)]
    worked = ours.status == other.status == "ok"
    least = least_gain(ratios) if worked else 0.0
    return {
        "kind": "shipped", "device": host_device().name, "problem": key, "found": found,
        "schedule": winner.to_json(), "rule": rule.to_json(), "status": [ours.status, other.status],
        "gain": statistics.median(ratios) if worked else 0.0, "least_gain": least,
        "ships": least > 1 + TIE and not found.startswith("neighbour"),
        "samples_s": ours.samples_s, "rule_s": other.samples_s, "xla_s": ours.baseline_s,
        "foreign_load": ours.foreign_load, "versions": current_versions(), "command": COMMAND,
    }  # fmt: skip


def record_of(row: dict, winner: Schedule) -> Record:
    """The record that ships: the new measurement, with where it is from."""
    measured = Measurement("ok", tuple(row["samples_s"]), tuple(row["xla_s"]))
    about = {name: row[name] for name in ("found", "command")} | row["versions"]
    return Record(
        row["problem"], "host", row["device"], winner, measured,
        versions=tuple(sorted(about.items())),
    )  # fmt: skip


def halves(device: str) -> Iterator[dict]:
    """A row for each recording of `device` that holds the rule's pick."""
    host, rng = recorded_hosts.load()[device], np.random.default_rng(0)
    for (on, key), records in host_sets.host_records().items():
        rule = host_rule.rule(problem_from_key(key), host)
        at = [row for row, record in enumerate(records) if record.schedule == rule]
        if on == device and at:
            samples = host_sets.steady(records)
            gains = [_gain_of_half(samples, at[0], rng) for _ in range(HALVES)]
            least = float(np.quantile(gains, 0.1))
            yield {
                "kind": "shipped", "device": device, "problem": key, "found": "halves", "schedule":
                rule.to_json(), "rule": rule.to_json(), "gain": round(float(np.mean(gains)), 5),
                "least_gain": round(least, 5), "ships": least > 1 + TIE,
                "command": f"{COMMAND} --halves {device}",
            }  # fmt: skip


def _gain_of_half(samples: np.ndarray, rule: int, rng: np.random.Generator) -> float:
    """The rule's time over the winner's in one half of the rounds, the winner of the other half."""
    first, second = np.array_split(rng.permutation(samples.shape[1]), 2)
    winner = np.argmin(np.median(samples[:, first], axis=1))
    return float(np.median(samples[rule, second]) / np.median(samples[winner, second]))


def rounded(row: dict) -> dict:
    """The row with samples of five digits."""
    short = {n: [float(f"{s:.5g}") for s in row[n]] for n in ("samples_s", "rule_s", "xla_s")}
    return {**row, **short}


def compared(device: str) -> set[tuple[str, str]]:
    """(problem, schedule) of the comparisons that were made on `device` before."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [row for row in map(json.loads, lines) if row["device"] == device]
    return {(row["problem"], json.dumps(row["schedule"], sort_keys=True)) for row in rows}


def main() -> None:
    """Compare all candidates, write the rows and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=pathlib.Path, nargs="*", default=[], help="tuned files")
    parser.add_argument("--neighbours", action="store_true", help="how far the shipped ones carry")
    parser.add_argument("--seconds", type=float, default=120.0, help="start none after so long")
    parser.add_argument("--halves", metavar="DEVICE", help="ask that CPU's recordings only")
    args = parser.parse_args()
    if args.halves:
        with RESULTS.open("a") as stream:
            stream.writelines(json.dumps(r, sort_keys=True) + "\n" for r in halves(args.halves))
        return
    host, shipped, end = host_device(), [], time.monotonic() + args.seconds
    known = compared(host.name)
    asked = neighbours(host.name) if args.neighbours else candidates(args.table, host.name)
    for (key, found), winner in asked.items():
        rule = host_rule.rule(problem_from_key(key), host)
        is_known = (key, json.dumps(winner.to_json(), sort_keys=True)) in known
        if winner == rule or is_known or time.monotonic() > end:
            continue
        row = rounded(row_of(key, found, winner, rule))
        with RESULTS.open("a") as stream:
            stream.write(json.dumps(row, sort_keys=True) + "\n")
        print(f"{key}: {row['gain']:.3f} (at least {row['least_gain']:.3f}) {winner}", flush=True)
        shipped += [record_of(row, winner)] if row["ships"] else []
    path = tuned.shipped_path(host.name)
    table = tuned.read(path) | tuned.Table.of(shipped)
    path.write_text(table.dumps())
    print(f"{len(table)} winners in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
