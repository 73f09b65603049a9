#!/usr/bin/env python3
"""Write the tables of the documents from committed rows: no number is typed by hand.

    python benchmarks/report.py            # rewrite the marked blocks of DOCUMENTS
    python benchmarks/report.py --check    # exit with 1 when a block is out of date

A block stands between `<!-- NAME -->` and `<!-- /NAME -->`; each has a renderer here and a file of
JSON rows under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import host_report  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = tuple(
    ROOT / name for name in ("README.md", "docs/compiler.md", "docs/host.md", "tuning/README.md")
)
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """The rows of results file `name`."""
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines() if line]


def ratio(row: Row) -> float:
    """XLA's median over ours."""
    return statistics.median(row["xla_s"]) / statistics.median(row["ours_s"])


def demo() -> str:
    """What `make demo` printed, from its rows."""
    lines = ["```"]
    for row in rows("demo.jsonl"):
        lines += [
            f"{row['name']} on {row['device']}",
            f"  results {'agree' if row['agrees'] else 'DISAGREE'}: "
            f"cosine >= {row['cosine_min']:.7f}, error {row['max_abs_error']:.2e}",
            f"  products taken by jaxpipe: {row['taken']} of {row['expected_products']}",
            f"  xla      {spread(row['xla_s'])}",
            f"  jaxpipe  {spread(row['ours_s'])}   {ratio(row):.2f}x",
        ]
    return "\n".join([*lines, "```"])


def spread(samples: Sequence[float]) -> str:
    """Median and quartiles in milliseconds."""
    low, mid, high = statistics.quantiles(samples, n=4)
    return f"{mid * 1e3:8.2f} ms  [{low * 1e3:.2f}, {high * 1e3:.2f}]"


def models() -> str:
    """Whole models on the host, one line a CPU, model and dtype; its last row counts."""
    lines = [
        "| CPU | model | XLA, ms | jaxpipe, ms | ratio | products taken |",
        "|---|---|---|---|---|---|",
    ]
    found = {(r["device"], r["name"], r["dtype"]): r for r in rows("models.jsonl")}
    for (cpu, name, _), row in sorted(found.items()):
        xla, ours = (statistics.median(row[side]) * 1e3 for side in ("xla_s", "ours_s"))
        cells = [cpu, name, f"{xla:.1f}", f"{ours:.1f}", f"{ratio(row):.2f}"]
        cells.append(f"{row['taken']} of {row['expected_products']}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


COMPILE_PARTS = {
    "process": "a process from start to kernel: Python, imports, choice, emitting, NVRTC",
    "choose": "of it: choosing the schedule",
    "first": "`compile_kernel`, empty cache directory",
    "warm": "`compile_kernel`, filled cache directory, another process",
    "emit": "emitting alone, no cache",
}


def compile_time() -> str:
    """What a first kernel costs, one line a part."""
    found = rows("compile.jsonl")
    about = (
        f"{found[0]['problem']} for {found[0]['target']} on {found[0]['device']}, "
        f"{found[0]['versions']['compiler']}."
    )
    lines = [about, "", "| what | time |", "|---|---|"]
    for row in found:
        lines.append(f"| {COMPILE_PARTS[row['part']]} | {spread(row['samples_s']).strip()} |")
    return "\n".join(lines)


def hopper_sass() -> str:
    """Instructions a k tile, one line a schedule and layout."""
    pairs: dict[tuple[str, str], list[Row]] = {}
    for row in rows("hopper_sass.jsonl"):
        layout = row["problem"].split()[2]
        pairs.setdefault((row["schedule"], layout), []).append(row)
    lines = [
        "| schedule | layout | HGMMA | 64 steps | 13 steps | prototype | Triton | registers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (schedule, layout), (even, odd) in pairs.items():
        short = schedule.replace("family=hopper,", "").replace(",reg_stages=2", "")
        peers = [str(even["peers"].get(name, "")) for name in ("prototype", "triton")]
        counts = [f"{r['instructions_per_k_tile']:g}" for r in (even, odd)]
        cells = [short, layout, str(even["tensor_core_per_k_tile"]), *counts, *peers]
        lines.append(f"| {' | '.join(cells)} | {even['registers']} |")
    return "\n".join(lines)


def gpu_programs() -> str:
    """Kernels and bytes of whole models, one line a side."""
    lines = [
        "| model | target | side | kernels | of these ours | element-wise | copies | GB moved "
        "| floor, ms | temporary, MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows("gpu_program.jsonl"):
        classes = row["classes"]
        moved = sum(c["read_bytes"] + c["written_bytes"] for c in classes.values())
        kernels = [sum(c["kernels"] for c in classes.values()), row["ours"]]
        kernels += [classes["elementwise"]["kernels"], classes["copy"]["kernels"]]
        cells = [row["model"], row["target"], row["side"], *map(str, kernels)]
        cells += [f"{moved / 1e9:.3f}", f"{row['floor_s'] * 1e3:.3f}"]
        lines.append(f"| {' | '.join(cells)} | {row['temp_bytes'] / 1e6:.1f} |")
    return "\n".join(lines)


def host_rows() -> list[Row]:
    """What bench_host.py measured last of every case."""
    return host_report.latest(rows("host.jsonl"))


def samplers_by_cpu(name: str) -> str:
    """`samplers` of every CPU, each named, with how well its recordings are known."""
    groups: dict[str, list[Row]] = {}
    for row in rows(name):
        groups.setdefault(row["device"], []).append(row)
    return "\n\n".join(f"{_recordings(group)}:\n\n{samplers(group)}" for group in groups.values())


def _recordings(group: list[Row]) -> str:
    """The CPU of sampler rows, and the standard error of a schedule's recorded time by set."""
    device, sets = group[0]["device"], list(dict.fromkeys(r["set"] for r in group))
    measured = [r for r in rows("model.jsonl") if r.get("device") == device and "error" in r]
    found = {f"host_{device}_{r['problem'].split()[1]}": 100 * r["error"] for r in measured}
    errors = ", ".join(f"{found[name]:.1f}" for name in sets)
    return f"{group[0]['cpu']} (`{device}`; a schedule's time is known to {errors} %)"


def samplers(of: list[Row]) -> str:
    """Mean efficiency after 10 and 50 trials, one line a method; the last row of each counts."""
    short = {r["set"]: r["set"].removeprefix(f"host_{r.get('device')}_") for r in of}
    found = {(short[r["set"]], r["method"]): r for r in of}
    sets = list(dict.fromkeys(key[0] for key in found))
    methods = list(dict.fromkeys(key[1] for key in found))
    lines = [f"| method | {' | '.join(sets)} | mean |", "|---" * (len(sets) + 2) + "|"]
    for method in methods:
        means = [found[s, method]["mean"] for s in sets if (s, method) in found]
        if len(means) == len(sets):
            mean = {k: statistics.fmean(m[k] for m in means) for k in ("10", "50")}
            cells = [f"{m['10']:.3f} / {m['50']:.3f}" for m in [*means, mean]]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


SOURCES = {"tuning": "recording", "live": "live", "neighbour": "neighbour", "halves": "halves"}


def shipped() -> str:
    """What ship_winners.py compared, one line a winner; the last comparison of each counts."""
    found = {(r["device"], r["problem"], str(r["schedule"])): r for r in rows("shipped.jsonl")}
    lines = ["| CPU | problem | found | rule over winner | at least | ships |", "|---" * 6 + "|"]
    for row in found.values():
        problem = row["problem"].replace(" float32->float32 float32", "")
        where = next(word for start, word in SOURCES.items() if row["found"].startswith(start))
        ships = "" if where == "neighbour" else "yes" if row["ships"] else "no"
        gains = f"{row['gain']:.3f} | {row['least_gain']:.3f}"
        lines.append(f"| `{row['device']}` | {problem} | {where} | {gains} | {ships} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "demo": demo,
    "models": models,
    "compile_time": compile_time,
    "hopper_sass": hopper_sass,
    "gpu_programs": gpu_programs,
    "samplers_host": lambda: samplers_by_cpu("samplers_host.jsonl"),
    "samplers_host_learnt": lambda: samplers_by_cpu("samplers_host_learnt.jsonl"),
    "shipped": shipped,
    "samplers_public": lambda: samplers(rows("samplers_public.jsonl")),
    "host_summary": lambda: host_report.summary(host_rows()),
    "host_products": lambda: host_report.products(host_rows()),
    "host_limit": lambda: host_report.limit(host_rows()),
    "host_model_limit": lambda: host_report.model_limit(host_rows()),
    "host_one_thread": lambda: host_report.one_thread(host_rows()),
}


def fill(text: str) -> str:
    """`text` with every marked block rendered anew; KeyError names a block without a renderer."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{BLOCKS[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n(?:.*?\n)?<!-- /\1 -->", replace, text, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite or check DOCUMENTS."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    args = parser.parse_args(argv)
    stale = False
    for document in DOCUMENTS:
        old = document.read_text()
        new = fill(old)
        stale |= new != old
        if not args.check:
            document.write_text(new)
    return int(args.check and stale)


if __name__ == "__main__":
    sys.exit(main())
