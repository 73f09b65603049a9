#!/usr/bin/env python3
"""Write the tables of the documents from committed rows: no number is typed by hand.

    python benchmarks/report.py            # rewrite the marked blocks of README.md
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
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "README.md"
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
    """Whole models on the host, one line a row of models.jsonl."""
    lines = ["| model | XLA, ms | jaxpipe, ms | ratio | products taken |", "|---|---|---|---|---|"]
    for row in rows("models.jsonl"):
        xla, ours = (statistics.median(row[side]) * 1e3 for side in ("xla_s", "ours_s"))
        taken = f"{row['taken']} of {row['expected_products']}"
        lines.append(f"| {row['name']} | {xla:.1f} | {ours:.1f} | {ratio(row):.2f} | {taken} |")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {"demo": demo, "models": models}


def fill(text: str) -> str:
    """`text` with every marked block rendered anew; KeyError names a block without a renderer."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{BLOCKS[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->\n(?:.*?\n)?<!-- /\1 -->", replace, text, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite or check README.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    args = parser.parse_args(argv)
    old = DOCUMENT.read_text()
    new = fill(old)
    if args.check:
        return int(new != old)
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
