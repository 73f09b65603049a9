#!/usr/bin/env python3
"""Compare samplers on recorded spaces: python tuning/compare_samplers.py --sets contract host

Replays every method of jaxpipe.tune.methods on exhaustive (or searched) recordings and prints the
efficiency of what a tuner would return after 1, 5, 10, 20 and 50 trials: best time of the space
over the true time of the choice, mean over seeds. --out writes JSON rows, --plot a PNG of the
curves (matplotlib). A method whose library is missing, or whose prediction a set has not, is named
and left out.

Sets
  contract      RTX 3090 and 2080 Ti GEMM, V100 tensor-core GEMM, A100 15x15 filter
  held_out      RTX 3060 laptop GEMM, A4000 and W6600 filter
  autotvm       AutoTVM logs: every float32 dense and batch_matmul task on V100
  host          exhaustive recordings of jaxpipe's host executor, on every recorded CPU
or single names, as printed; host_512x768x768 names that product on every CPU. With --learnt the
prior of a host set is corrected by the recordings of the other problems, as in a live study.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import warnings
from collections.abc import Iterator

import host_sets
import numpy as np
import optuna
import public_sets
import recorded_hosts

from jaxpipe.tune.finals import FINALISTS
from jaxpipe.tune.methods import METHODS
from jaxpipe.tune.replay import Replay, simulate
from jaxpipe.version import VERSION

COLUMNS = (1, 5, 10, 20, 50)


def replays(names: list[str], learnt: bool) -> Iterator[tuple[str, Replay]]:
    """The sets that `names` (groups or single sets) ask for; learnt: see host_sets."""
    autotvm = [s for kind in ("dense", "batch_matmul") for s in public_sets.autotvm_sets(kind)]
    public = {
        "contract": list(public_sets.CONTRACT),
        "held_out": list(public_sets.HELD_OUT),
        "autotvm": autotvm,
    }
    for name in names:
        for group, members in public.items():
            yield from ((s.name, s.load()) for s in members if name in (group, s.name))
        if name.startswith("host"):
            yield from host_sets.host_sets(
                learnt=learnt, asked=lambda known, name=name: name in host_names(known)
            ).items()


def host_names(name: str) -> tuple[str, ...]:
    """What the recording `name` is asked for by."""
    return "host", name, "host_" + name.rpartition("_")[2]


def runnable(methods: list[str]) -> list[str]:
    """The methods whose libraries are installed; the others are named on standard error."""
    found = []
    for name in methods:
        needs = METHODS[name].needs
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{name}: not run, {needs} is not installed", file=sys.stderr)
        else:
            found.append(name)
    return found


def courses(replay: Replay, method: str, seeds: int, trials: int) -> np.ndarray:
    """(seeds, trials) efficiencies."""
    make = METHODS[method].make
    return np.array([simulate(replay, make(replay.candidates, s), trials, s) for s in range(seeds)])


def row_of(name: str, method: str, found: np.ndarray, command: str) -> dict[str, object]:
    """One result row: means and 10th percentiles at COLUMNS."""
    at = [c for c in COLUMNS if c <= found.shape[1]]
    device = host_sets.device_in(name)
    return {
        "kind": "sampler",
        "set": name,
        **({"device": device, "cpu": recorded_hosts.about(device)} if device else {}),
        "method": method,
        "seeds": len(found),
        "trials": found.shape[1],
        "mean": {str(c): round(float(found[:, c - 1].mean()), 4) for c in at},
        "p10": {str(c): round(float(np.quantile(found[:, c - 1], 0.1)), 4) for c in at},
        "curve": [round(float(x), 4) for x in found.mean(axis=0)],
        "versions": {"jaxpipe": VERSION, "optuna": optuna.__version__},
        "returned": f"best of {FINALISTS} finalists",
        "command": command,
    }


def table(rows: list[dict], methods: list[str]) -> str:
    """Means by set and method, and over all sets, as Markdown."""
    names = list(dict.fromkeys(r["set"] for r in rows))
    found = {(r["set"], r["method"]): r["mean"] for r in rows}
    lines = ["| method | " + " | ".join(names) + " | mean |", "|---" * (len(names) + 2) + "|"]
    for method in methods:
        cells = [found.get((name, method)) for name in names]
        shown = ["/".join(f"{v:.3f}" for v in c.values()) if c else "-" for c in cells]
        known = [c for c in cells if c]
        mean = ""
        if len(known) == len(cells):
            mean = "/".join(f"{np.mean([c[k] for c in known]):.3f}" for k in known[0])
        lines.append(f"| {method} | " + " | ".join(shown) + f" | {mean or '-'} |")
    return "\n".join([f"efficiency at {', '.join(map(str, COLUMNS))} trials", *lines])


def plot(rows: list[dict], path: pathlib.Path) -> None:
    """Best-in-k curves, one panel a set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(r["set"] for r in rows))
    figure, axes = pyplot.subplots(
        1, len(names), figsize=(4 * len(names), 3.6), sharey=True, squeeze=False
    )
    for axis, name in zip(axes[0], names, strict=True):
        for row in (r for r in rows if r["set"] == name):
            axis.plot(range(1, len(row["curve"]) + 1), row["curve"], label=row["method"])
        axis.set(title=name, xlabel="trials")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("best so far / best of the space")
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["contract"])
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=list(METHODS))
    parser.add_argument("--learnt", action="store_true", help="host sets: a corrected prior")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines, appended")
    parser.add_argument("--plot", type=pathlib.Path, help="PNG of the curves")
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    command = "python tuning/compare_samplers.py " + " ".join(sys.argv[1:])
    rows, methods = [], runnable(args.methods)
    for name, replay in replays(args.sets, args.learnt):
        for method in methods:
            if METHODS[method].serves(replay.candidates):
                found = courses(replay, method, args.seeds, args.trials)
                rows.append(row_of(name, method, found, command))
                print(name, method, rows[-1]["mean"], file=sys.stderr, flush=True)
                if args.out:
                    with args.out.open("a") as stream:
                        stream.write(json.dumps(rows[-1]) + "\n")
    if not rows:
        print(f"no set is named {' '.join(args.sets)}", file=sys.stderr)
        return 1
    print(table(rows, methods))
    if args.plot:
        plot(rows, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
