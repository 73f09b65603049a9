"""What the campaigns share: the command line, the clock, the rows, and the dry run.

A campaign does everything that needs no GPU in `--dry-run`, in this order and with the same code,
and stops where the first kernel would be launched.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from jaxpipe.epilogue import Epilogue  # noqa: E402
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem  # noqa: E402
from jaxpipe.runtime import device as devices  # noqa: E402
from jaxpipe.target import Device  # noqa: E402
from jaxpipe.version import VERSION  # noqa: E402

NO_GPU = 3
NT = Layout(transposed=True)
# Linear layers and attention of BERT-base and GPT-2, decoding, square products, ResNet-50 layers.
PROBLEMS: tuple[Problem, ...] = (
    Matmul(1024, 768, 768, epilogue=Epilogue(bias="column", residual=True)),
    Matmul(1024, 3072, 768, epilogue=Epilogue(bias="column", activation="gelu_erf")),
    Matmul(1024, 768, 3072, epilogue=Epilogue(bias="column", residual=True)),
    Matmul(4096, 4096, 1024, epilogue=Epilogue(bias="column", activation="gelu_tanh")),
    Matmul(128, 128, 64, batch=(96,), rhs=NT, out_dtype="float32"),
    Matmul(512, 512, 64, batch=(96,), rhs=NT),
    Matmul(8, 3072, 768),
    Matmul(1, 4096, 4096),
    Matmul(2048, 2048, 2048),
    Matmul(8192, 8192, 8192),
    Matmul(2048, 2048, 2048, dtype="float32", precision="tf32"),
    Conv2d(32, 56, 56, 64, 64, (3, 3), padding=((1, 1), (1, 1))),
    Conv2d(32, 14, 14, 256, 256, (3, 3), padding=((1, 1), (1, 1))),
)


@dataclass(frozen=True)
class Campaign:
    """One run: whether it is dry, where rows go, when it ends, which GPU."""

    is_dry: bool
    out: pathlib.Path
    end: float
    gpu: Device

    @property
    def left_s(self) -> float:
        """Seconds until the campaign should stop starting new work."""
        return self.end - time.monotonic()

    def write(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one JSON row to `name` in the output folder."""
        self.out.mkdir(parents=True, exist_ok=True)
        full = {
            "device": self.gpu.name,
            "versions": {"jax": jax.__version__, "jaxpipe": VERSION},
            "command": " ".join(sys.argv),
            **row,
        }
        with (self.out / name).open("a") as file:
            file.write(json.dumps(full, sort_keys=True) + "\n")


def parser(description: str, seconds: float) -> argparse.ArgumentParser:
    """The command line of every campaign."""
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dry-run", action="store_true", help="stop where a GPU is needed")
    p.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "build/device"))
    )
    p.add_argument("--seconds", type=float, default=seconds, help="stop starting work after this")
    p.add_argument("--target", default="h200", help="GPU of a dry run")
    return p


def begin(args: argparse.Namespace) -> Campaign:
    """The campaign of these arguments; exits with 3 when there is no GPU and it is not dry."""
    if args.dry_run:
        gpu = devices.named(args.target)
    elif visible := devices.visible_gpus():
        gpu = devices.of_jax(visible[0])
    else:
        print("no GPU is visible to JAX: run `python -m jaxpipe doctor`, or use --dry-run")
        sys.exit(NO_GPU)
    print(f"{'dry run for' if args.dry_run else 'on'} {gpu.name}, {args.seconds:.0f} s", flush=True)
    return Campaign(args.dry_run, args.out, time.monotonic() + args.seconds, gpu)
