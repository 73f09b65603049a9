#!/usr/bin/env python3
"""Run a model twice, through jaxpipe and through XLA alone, and compare results and times.

    python benchmarks/compare_xla.py bert                       # real MiniLM weights and sentences
    python benchmarks/compare_xla.py bert --model bert-base --dtype bfloat16 --json rows.jsonl

Prints agreement, time per batch (median and quartiles of interleaved runs in one process), the
ratio and how many products jaxpipe took. Exits with 1 when the two sides disagree.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import cases  # noqa: E402
from benchmarks.comparison import Case, Outcome, compare  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Row:
    """One comparison: its function in benchmarks/cases.py, default model, batch and size."""

    build: Callable[..., Case]
    model: str
    batch: int
    size: int


CASES = {
    "bert": Row(cases.bert, "minilm", 8, 128),
    "gpt2": Row(cases.gpt2, "gpt2", 1, 128),
    "resnet": Row(cases.resnet, "resnet50", 4, 224),
    "vgg": Row(cases.vgg, "vgg16", 1, 224),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("case", choices=sorted(CASES), help="which model")
    p.add_argument("--model", help="size with random weights, or a Hugging Face folder")
    p.add_argument(
        "--dtype", action="append", choices=DTYPES, help="repeatable; default float32 and bfloat16"
    )
    p.add_argument("--batch", type=int, help="rows of the batch")
    p.add_argument("--size", type=int, help="tokens a row, or pixels a side")
    p.add_argument("--blocks", type=int, default=15, help="paired samples (default 15)")
    p.add_argument("--implementation", choices=("cuda", "host", "interpret"), help="force one")
    p.add_argument("--prepack", action="store_true", help="bert: pack the weights once, before")
    p.add_argument("--json", type=pathlib.Path, help="append one JSON row a dtype to this file")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 when both sides agree on every dtype, else 1."""
    args = parser().parse_args(argv)
    row = CASES[args.case]
    model, batch, size = args.model or row.model, args.batch or row.batch, args.size or row.size
    if args.prepack and args.case != "bert":
        parser().error(f"--prepack is for bert, got {args.case}")
    extra = {"prepack": True} if args.prepack else {}
    outcomes = []
    for dtype in args.dtype or DTYPES[:2]:
        case = row.build(model, dtype, batch, size, args.implementation, **extra)
        outcomes.append(compare(case, blocks=args.blocks))
        print(outcomes[-1].text())
    if args.json:
        _append(args.json, outcomes, [sys.argv[0], *(argv or sys.argv[1:])])
    return 0 if all(o.agrees for o in outcomes) else 1


def _append(path: pathlib.Path, outcomes: Sequence[Outcome], command: Sequence[str]) -> None:
    shown = " ".join(["python", "benchmarks/compare_xla.py", *command[1:]])
    with path.open("a") as file:
        for outcome in outcomes:
            file.write(json.dumps({**asdict(outcome), "command": shown}, sort_keys=True) + "\n")
    print(f"rows appended to {path}")


if __name__ == "__main__":
    sys.exit(main())
