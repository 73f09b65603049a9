"""The tables of docs/host.md and README.md on csrc/host, from benchmarks/results/host.jsonl.

In: rows of bench_host.py. Out: Markdown, CPU by CPU. The last row of a CPU, case, dtype, variant
and number of threads counts. It must not measure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
DTYPES = ("float32", "bfloat16", "float16")
LIST = ("gemm", "attention")  # the 22 products of BERT, GPT-2 and MiniLM
LIBRARIES = ("xla", "jaxpipe", "numpy", "torch")
VARIANTS = ("plain", "bias+gelu", "plain prepacked")


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of everything that was measured: on the wall clock while nobody else ran, or in
    processor time where one core was used."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["is_quiet"] and (row["clock"] == "wall" or row["threads"] == 1):
            key = tuple(row[k] for k in ("device", "case", "dtype", "variant", "threads"))
            kept[key] = row
    return list(kept.values())


def by_cpu(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each CPU, in order of appearance."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["device"], []).append(row)
    return found


def ratio(row: Row) -> float:
    """Median over the rounds of XLA's time over ours."""
    pairs = zip(row["seconds"]["xla"], row["seconds"]["jaxpipe"], strict=True)
    return statistics.median(x / j for x, j in pairs)


def rate(row: Row, library: str) -> float | None:
    """Median GF/s, None where it was not measured."""
    seconds = row["seconds"].get(library)
    return row["flops"] / statistics.median(seconds) / 1e9 if seconds else None


def _known_rate(library: str, *rows: Row | None) -> float | None:
    """Of the first row that has it: numpy and PyTorch do not differ by our variant."""
    return next((r for row in rows if row and (r := rate(row, library))), None)


def _peak(row: Row, library: str) -> float:
    value = rate(row, library)
    assert value is not None
    return value * 1e9 / row["peak_flops"]


def summary(rows: Sequence[Row]) -> str:
    """One line a CPU, dtype and variant: geometric mean, worst and best ratio to XLA."""
    lines = [
        "| CPU | dtype | what | cases | geometric mean of XLA's time over ours | least | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for cpu, measured in by_cpu(rows).items():
        for dtype in DTYPES:
            for variant in VARIANTS:
                for what, groups in (("products", LIST), ("convolutions", ("conv",))):
                    chosen = [r for r in _of(measured, dtype, variant) if r["group"] in groups]
                    if chosen:
                        lines.append(_summary_line(cpu, dtype, f"{what}, {variant}", chosen))
    return "\n".join(lines)


def _of(rows: Sequence[Row], dtype: str, variant: str) -> list[Row]:
    most = max(row["threads"] for row in rows)
    return [r for r in rows if (r["dtype"], r["variant"], r["threads"]) == (dtype, variant, most)]


def _summary_line(cpu: str, dtype: str, what: str, rows: Sequence[Row]) -> str:
    ratios = [ratio(row) for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    numbers = f"{len(rows)} | {mean:.2f} | {min(ratios):.2f} | {max(ratios):.2f}"
    return f"| {cpu} | {dtype} | {what} | {numbers} |"


def products(rows: Sequence[Row]) -> str:
    """A table a CPU: one line a case and dtype: GF/s of every library, ratio, quartiles, fraction
    of peak."""
    tables = (f"### {cpu}\n\n{_table(measured)}" for cpu, measured in by_cpu(rows).items())
    return "\n\n".join(tables)


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| case | dtype | XLA | jaxpipe | numpy | PyTorch | XLA's time over ours [quartiles] "
        "| of FMA peak: XLA, ours | with bias+gelu | prepacked |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for dtype in DTYPES:
        fused, packed = (
            {r["case"]: r for r in _of(rows, dtype, variant)} for variant in VARIANTS[1:]
        )
        for row in _of(rows, dtype, "plain"):
            others = (fused.get(row["case"]), packed.get(row["case"]))
            lines.append(_product_line(row, others))
    return "\n".join(lines)


def _product_line(row: Row, others: Sequence[Row | None]) -> str:
    rates = (_known_rate(library, row, *others) for library in LIBRARIES)
    pairs = zip(row["seconds"]["xla"], row["seconds"]["jaxpipe"], strict=True)
    low, mid, high = statistics.quantiles([x / j for x, j in pairs], n=4)
    cells = [
        row["case"],
        row["dtype"],
        *("" if value is None else f"{value:.0f}" for value in rates),
        f"{mid:.2f} [{low:.2f}, {high:.2f}]",
        f"{_peak(row, 'xla'):.2f}, {_peak(row, 'jaxpipe'):.2f}",
        *("" if other is None else f"{ratio(other):.2f}" for other in others),
    ]
    return "| " + " | ".join(cells) + " |"


def limit(rows: Sequence[Row]) -> str:
    """What XLA leaves: fractions of the FMA peak by number of rows, medians over the cases."""
    lines = [
        "| CPU | float32 products | of FMA peak: XLA | ours | ours, prepacked | left over XLA |",
        "|---|---|---|---|---|---|",
    ]
    for cpu, measured in by_cpu(rows).items():
        products = [row for row in measured if row["group"] == "gemm"]
        lines += [f"| {cpu} | m = {m} | {_limit_cells(products, m)} |" for m in (128, 512, 1024)]
    return "\n".join(lines)


def _limit_cells(rows: Sequence[Row], m: int) -> str:
    plain, packed = (_of(rows, "float32", v) for v in (VARIANTS[0], VARIANTS[2]))
    theirs, mine, ready = (
        statistics.median(_peak(r, library) for r in chosen if r["case"].startswith(f"{m}x"))
        for chosen, library in ((plain, "xla"), (plain, "jaxpipe"), (packed, "jaxpipe"))
    )
    return f"{theirs:.2f} | {mine:.2f} | {ready:.2f} | {1 / theirs:.2f}"


def model_limit(rows: Sequence[Row]) -> str:
    """What the products of MiniLM on 8 x 128 tokens take at the peak of all cores."""
    layers, hidden, inner, batch, length = 6, 384, 1536, 8, 128
    linear = 2 * batch * length * (4 * hidden * hidden + 2 * hidden * inner)
    attention = 2 * 2 * batch * length * length * hidden
    flops = layers * (linear + attention)
    lines = [f"The 48 products of MiniLM's batch are {flops / 1e9:.1f} GFLOP. In float32, at the"]
    lines.append("FMA peak measured beside these rows on all cores, they alone take")
    for cpu, measured in by_cpu(rows).items():
        peak = statistics.median(r["peak_flops"] for r in _of(measured, "float32", "plain"))
        lines.append(f"{flops / peak * 1e3:.0f} ms at {peak / 1e9:.0f} GF/s ({cpu}),")
    return " ".join(lines).rstrip(",") + "."


def one_thread(rows: Sequence[Row]) -> str:
    """2048^3 on one core: the fraction of the FMA peak measured beside it."""
    lines = ["| CPU | case | dtype | of FMA peak: XLA | jaxpipe |", "|---|---|---|---|---|"]
    for row in rows:
        if row["threads"] == 1 and row["variant"] == "plain":
            cells = [row["device"], row["case"], row["dtype"]]
            cells += [f"{_peak(row, library):.2f}" for library in ("xla", "jaxpipe")]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
