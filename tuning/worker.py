#!/usr/bin/env python3
"""Measure for tuners elsewhere: python tuning/worker.py --storage postgresql://tuner@host/db

Start one on each machine, one a GPU (CUDA_VISIBLE_DEVICES), and the tuner anywhere with
`tune_matmul.py ... --storage URL --workers`. A worker takes jobs for its own executor and device
only. It may be killed at any moment: its job goes to another worker after --lease seconds, and
what it measured but could not hand in lies in --spool until it is started again.
"""

import argparse
import pathlib
import sys

from jaxpipe import settings
from jaxpipe.errors import JaxpipeError
from jaxpipe.target import DEVICES
from jaxpipe.tune.arguments import target_of
from jaxpipe.tune.crew import LocalCrew
from jaxpipe.tune.workers import LEASE_S, Worker


def main() -> int:
    """Serve until idle or killed; 1 on a jaxpipe error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", required=True, help="postgresql://USER@HOST/DB")
    parser.add_argument("--executor", choices=("host", "cuda"), help="default: what JAX sees")
    parser.add_argument("--device", choices=sorted(DEVICES), help="GPU model, if not recognised")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile (cuda)")
    parser.add_argument(
        "--lease", type=float, default=LEASE_S, help="seconds a dead worker's job waits"
    )
    parser.add_argument(
        "--idle", type=float, default=0.0, help="end after so many seconds without a job"
    )
    parser.add_argument(
        "--spool", type=pathlib.Path, help="directory of outcomes not yet handed in"
    )
    parser.add_argument("--measuring", default="jaxpipe.tune.serve_measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    executor, target = target_of(args)
    crew = LocalCrew(args.jobs if executor == "cuda" else 0, measuring=args.measuring)
    spool = args.spool or settings.cache_dir() / "spool"
    try:
        worker = Worker(args.storage, executor, target.name, crew, spool, args.lease, _say)
        return 0 if worker.run(args.idle) >= 0 else 1
    except JaxpipeError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        crew.close()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
