#!/usr/bin/env python3
"""Tune every product of a whole program: python tuning/tune_model.py bert --trials 200

The program is lowered (not run), its distinct problems are collected, and each is tuned with a
part of --trials by its predicted share of the time. The program is one of benchmarks/models (bert,
gpt2, resnet, vgg; run from a checkout) or anybody's `module:function`: the function takes no
arguments and returns (f, args), and f calls jaxpipe.dot, jaxpipe.accelerate or the like.

Examples
  MiniLM at batch 8 x 128     tune_model.py bert --model minilm --batch 8 --length 128
  only what would be tuned    tune_model.py gpt2 --list
  your own program            tune_model.py mypackage.train:example --trials 300
"""

import argparse
import importlib
import pathlib
import sys

from jaxpipe.errors import JaxpipeError, TuningError
from jaxpipe.tune.arguments import add_study_arguments, target_of, tune
from jaxpipe.tune.programs import problems_of, shares, trials_of

MODELS = {"bert": "minilm", "gpt2": "gpt2", "resnet": "resnet18", "vgg": "vgg16"}


def program_of(args: argparse.Namespace):
    """The function and arguments that the command line names."""
    if ":" in args.program:
        module, _, name = args.program.partition(":")
        return getattr(importlib.import_module(module), name)()
    if args.program not in MODELS:
        raise TuningError(f"program {args.program!r}: use {', '.join(MODELS)} or module:function")
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
    try:
        cases = importlib.import_module("benchmarks.cases")
    except ImportError as error:
        raise TuningError(f"{args.program} needs a checkout and its libraries: {error}") from error
    make = getattr(cases, args.program)
    case = make(
        args.model or MODELS[args.program], args.dtype, args.batch, args.length, args.executor
    )
    return case.ours, case.arguments


def main() -> int:
    """Trace, list, tune; 1 on a jaxpipe error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", help=f"{', '.join(MODELS)} or module:function")
    parser.add_argument(
        "--model", default="", help="size or folder of weights (default: the smallest)"
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128, help="tokens, or pixels a side")
    parser.add_argument("--list", action="store_true", help="only show the problems")
    add_study_arguments(parser)
    args = parser.parse_args()
    try:
        function, arguments = program_of(args)
        counts = problems_of(function, *arguments)
        _, target = target_of(args)
        share = shares(counts, target)
        if not share:
            raise TuningError("the program gives jaxpipe no product: is its implementation xla?")
        return _tune_all(args, counts, share)
    except JaxpipeError as error:
        print(f"tune_model: {error}", file=sys.stderr)
        return 1


def _tune_all(args: argparse.Namespace, counts, share) -> int:
    trials = trials_of(share, args.trials)
    for problem, part in share.items():
        worth = trials.get(problem, 0)
        print(f"{100 * part:5.1f} %  {counts[problem]:3d} x {problem}: {worth} trials")
    if args.list:
        return 0
    failures = 0
    for problem, count in trials.items():
        args.trials = count
        try:
            tune(problem, args)
        except JaxpipeError as error:
            failures += 1
            print(f"tune_model: {problem}: {error}", file=sys.stderr)
    return 1 if failures == len(trials) else 0


if __name__ == "__main__":
    sys.exit(main())
