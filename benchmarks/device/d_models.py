#!/usr/bin/env python3
"""(d) Whole models: BERT, GPT-2, ResNet and VGG through jaxpipe and through XLA, in one process.

    python benchmarks/device/d_models.py [--dry-run]

Runs benchmarks/compare_xla.py for each model and writes models.jsonl.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import compare_xla
from benchmarks.device import campaign

RUNS: tuple[tuple[str, ...], ...] = (
    ("bert", "--model", "bert-base", "--batch", "8", "--size", "128"),
    ("bert", "--model", "bert-large", "--batch", "8", "--size", "384"),
    ("gpt2", "--model", "gpt2", "--batch", "1", "--size", "1024"),
    ("gpt2", "--model", "gpt2-medium", "--batch", "8", "--size", "128"),
    ("resnet", "--model", "resnet50", "--batch", "32"),
    ("vgg", "--model", "vgg16", "--batch", "32"),
)
LEAST_S = 45.0


def main() -> int:
    """Returns the number of models that failed or disagreed."""
    run = campaign.begin(campaign.parser(__doc__, 540).parse_args())
    run.out.mkdir(parents=True, exist_ok=True)
    script = campaign.ROOT / "benchmarks" / "compare_xla.py"
    failed = 0
    for words in RUNS:
        arguments = [*words, "--dtype", "bfloat16", "--json", str(run.out / "models.jsonl")]
        compare_xla.parser().parse_args(arguments)
        print(" ".join(arguments), flush=True)
        if run.is_dry:
            continue
        if run.left_s < LEAST_S:
            print(f"left out: {run.left_s:.0f} s are too few")
            continue
        command = [sys.executable, str(script), *arguments]
        failed += subprocess.run(command, timeout=run.left_s, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
