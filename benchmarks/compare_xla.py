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
from dataclasses import asdict

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.comparison import Case, Outcome, compare  # noqa: E402

DTYPES = ("float32", "bfloat16", "float16")


def bert_case(args: argparse.Namespace, dtype: str) -> Case:
    """The BERT encoder on real sentences: unit sentence embeddings."""
    from benchmarks.cases import bert

    return bert(args.model, dtype, args.batch, args.length, args.implementation)


CASES: dict[str, Callable[[argparse.Namespace, str], Case]] = {"bert": bert_case}
DEFAULT_MODEL = {"bert": "minilm"}


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
    p.add_argument("--batch", type=int, default=8, help="rows of the batch (default 8)")
    p.add_argument("--length", type=int, default=128, help="tokens a row (default 128)")
    p.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default 15)")
    p.add_argument("--implementation", choices=("cuda", "host", "interpret"), help="force one")
    p.add_argument("--json", type=pathlib.Path, help="append one JSON row a dtype to this file")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 when both sides agree on every dtype, else 1."""
    args = parser().parse_args(argv)
    args.model = args.model or DEFAULT_MODEL[args.case]
    outcomes = []
    for dtype in args.dtype or DTYPES[:2]:
        case = CASES[args.case](args, dtype)
        outcomes.append(compare(case, rounds=args.rounds))
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
