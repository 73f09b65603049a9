#!/usr/bin/env python3
"""(e) CUDA graphs, several threads, donation, and the same bits in a second process.

    python benchmarks/device/e_graphs.py [--dry-run]

One small network in four ways of running it; every way must give the same bits. Writes
graphs.jsonl.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import jax
import jax.numpy as jnp
import numpy as np

import jaxpipe
from benchmarks.device import campaign

NO_GRAPHS = "--xla_gpu_enable_command_buffer="
THREADS, REPEATS = 8, 20


def network(x: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array) -> jax.Array:
    """Six products with epilogues: enough for XLA to form a CUDA graph."""
    for _ in range(3):
        hidden = jaxpipe.dot(x, w1, bias=b1, activation="gelu_tanh")
        x = jaxpipe.dot(hidden, w2, residual=x)
    return x


def arguments() -> tuple[jax.Array, ...]:
    """The same on every machine."""
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = ((512, 768), (768, 3072), (3072,), (3072, 768))
    return tuple(
        (0.02 * jax.random.normal(k, s)).astype(jnp.bfloat16)
        for k, s in zip(keys, shapes, strict=True)
    )


def digest(y: jax.Array) -> str:
    """SHA-256 of the bits."""
    return hashlib.sha256(np.asarray(y).tobytes()).hexdigest()


def repeated() -> set[str]:
    """Twenty calls with fresh operand buffers: graphs are updated with new addresses."""
    step = jax.jit(network)
    return {digest(step(*jax.tree.map(jnp.copy, arguments()))) for _ in range(REPEATS)}


def from_threads() -> set[str]:
    """Eight threads call one program at once."""
    step, found = jax.jit(network), set()

    def work() -> None:
        for _ in range(REPEATS):
            found.add(digest(step(*arguments())))

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def donated() -> set[str]:
    """x is given away; its buffer may become the result's."""
    step = jax.jit(network, donate_argnums=0)
    return {digest(step(*arguments())) for _ in range(REPEATS)}


def in_child(flags: str) -> set[str]:
    """A second process, with XLA's `flags`."""
    env = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
    result = subprocess.run(
        [sys.executable, __file__, "--digest"], env=env, capture_output=True, text=True, check=False
    )
    return {result.stdout.strip() or result.stderr[-2000:]}


def main() -> int:
    """Returns 1 when two ways differ."""
    parser = campaign.parser(__doc__, 300)
    parser.add_argument(
        "--digest", action="store_true", help="print the digest of one call and end"
    )
    args = parser.parse_args()
    if args.digest:
        print(digest(jax.jit(network)(*arguments())))
        return 0
    run = campaign.begin(args)
    ways: dict[str, Callable[[], Any]] = {
        "graphs, fresh buffers": repeated,
        "threads": from_threads,
        "donation": donated,
        "second process": lambda: in_child(""),
        "without graphs": lambda: in_child(NO_GRAPHS),
    }
    if run.is_dry:
        with jaxpipe.options(target=run.gpu.name):
            lowered = jax.jit(network).trace(*arguments()).lower(lowering_platforms=("cuda",))
        print(
            f"{lowered.as_text().count('@jaxpipe_cuda_launch')} kernels lowered: {', '.join(ways)}"
        )
        return 0
    found: set[str] = set()
    for name, way in ways.items():
        bits = way()
        found |= bits
        print(f"{name}: {', '.join(sorted(bits))}", flush=True)
        run.write("graphs.jsonl", {"kind": "graphs", "way": name, "digests": sorted(bits)})
    return 0 if len(found) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
