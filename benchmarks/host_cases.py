"""What bench_host.py measures: products and convolutions of known models, and how XLA writes them.

In: nothing. Out: Cases by group. It must not time anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxpipe.epilogue import Epilogue
from jaxpipe.ops import packing
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.runtime import host
from jaxpipe.schedule import HostSchedule

FUSED = Epilogue(bias="column", activation="gelu_erf")


@dataclass(frozen=True, slots=True)
class Case:
    """One problem without dtype and epilogue; `build` gives it both."""

    name: str
    group: str
    build: Callable[[str, Epilogue], Problem]


def _product(m: int, n: int, k: int, batch: int = 0) -> Case:
    def build(dtype: str, epilogue: Epilogue) -> Problem:
        return Matmul(m, n, k, (batch,) if batch else (), dtype, epilogue=epilogue)

    name = f"{batch}x{m}x{n}x{k}" if batch else f"{m}x{n}x{k}"
    return Case(name, "attention" if batch else "gemm", build)


def _conv(batch: int, size: int, c: int, o: int, kernel: int, stride: int = 1) -> Case:
    pad = (kernel - 1) // 2

    def build(dtype: str, epilogue: Epilogue) -> Problem:
        padding = ((pad, pad), (pad, pad))
        return Conv2d(
            batch, size, size, c, o, (kernel, kernel), (stride, stride), padding, dtype=dtype,
            epilogue=epilogue,
        )  # fmt: skip

    name = f"{batch}x{size}x{size}x{c}->{o} {kernel}x{kernel}" + (
        f"/{stride}" if stride > 1 else ""
    )
    return Case(name, "conv", build)


# BERT (768, 3072), BERT-Large (1024, 4096), GPT-2 (2304), MiniLM (384): m x n x k.
PRODUCTS = (
    _product(1, 768, 768), _product(1, 3072, 768), _product(1, 768, 3072), _product(1, 2304, 768),
    _product(16, 768, 768), _product(16, 3072, 768), _product(16, 768, 3072),
    _product(16, 4096, 1024),
    _product(128, 768, 768), _product(128, 3072, 768), _product(128, 768, 3072),
    _product(128, 384, 384), _product(128, 1024, 4096),
    _product(512, 768, 768), _product(512, 3072, 768), _product(512, 4096, 1024),
    _product(1024, 2304, 768), _product(1024, 1024, 1024),
)  # fmt: skip
# Scores and values of BERT (one sentence of 512) and MiniLM (8 x 12 heads, 128 tokens).
ATTENTION = (
    _product(512, 512, 64, 12), _product(512, 64, 512, 12), _product(128, 128, 32, 96),
    _product(128, 32, 128, 96),
)  # fmt: skip
SQUARE = (replace(_product(2048, 2048, 2048), group="square"),)
# ResNet-50 and VGG-16.
CONVS = (
    _conv(1, 56, 64, 64, 1), _conv(1, 56, 64, 64, 3), _conv(1, 28, 128, 128, 3),
    _conv(1, 28, 256, 512, 1, 2), _conv(1, 14, 256, 256, 3), _conv(1, 7, 512, 512, 3),
    _conv(1, 7, 512, 2048, 1), _conv(1, 224, 3, 64, 7, 2), _conv(1, 112, 128, 128, 3),
    _conv(4, 28, 128, 128, 3), _conv(4, 14, 1024, 256, 1),
)  # fmt: skip
LIST = PRODUCTS + ATTENTION
ALL = LIST + SQUARE + CONVS
QUICK = tuple(
    c for c in LIST
    if c.name in ("1x3072x768", "16x768x768", "128x768x768", "128x384x384", "512x768x768",
                  "96x128x128x32")
)  # fmt: skip


def operands(problem: Problem) -> tuple[np.ndarray, ...]:
    """Standard normal operands: lhs, rhs, and the bias where there is one."""
    rng = np.random.default_rng(0)
    if isinstance(problem, Conv2d):
        lhs = (problem.batch, problem.height, problem.width, problem.in_channels)
        rhs = (*problem.kernel, problem.in_channels, problem.out_channels)
    else:
        lhs = (*problem.batch, problem.m, problem.k)
        rhs = (*problem.batch, problem.k, problem.n)
    shapes = [lhs, rhs] + [(problem.n,)] * (problem.epilogue.bias != "none")
    return tuple(rng.standard_normal(s, np.float32).astype(problem.dtype) for s in shapes)


def xla_function(problem: Problem) -> Callable[..., jax.Array]:
    """The problem as users write it, jitted."""

    def product(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        if isinstance(problem, Matmul):
            return jnp.matmul(lhs, rhs)
        return jax.lax.conv_general_dilated(
            lhs, rhs, problem.stride, problem.padding, rhs_dilation=problem.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip

    def fused(lhs: jax.Array, rhs: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.gelu(product(lhs, rhs) + bias, approximate=False)

    return jax.jit(product if problem.epilogue.is_identity else fused)


def our_function(
    problem: Problem, schedule: HostSchedule, is_packed: bool = False
) -> Callable[..., jax.Array]:
    """The same by csrc/host, jitted; is_packed: rhs is the data of `jaxpipe.prepack(rhs)`."""

    def run(lhs: jax.Array, rhs: jax.Array, bias: jax.Array | None = None) -> jax.Array:
        return host.call(problem, schedule, lhs, rhs, bias, is_packed=is_packed)[0]

    return jax.jit(run)


def can_prepack(problem: Problem) -> bool:
    """True for one matrix product whose weight this CPU's kernels read packed."""
    return isinstance(problem, Matmul) and not problem.batch and problem.dtype in packing.words()[1]


def error(problem: Problem, got: jax.Array, arrays: tuple[np.ndarray, ...]) -> float:
    """Largest difference to XLA's float32 result, over what rounding explains (<= 1 is right)."""
    wide = [a.astype(np.float32) for a in arrays]
    with jax.default_matmul_precision("highest"):
        want = np.asarray(xla_function(problem)(*wide), np.float64)
    epsilon = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}[problem.out_dtype]
    k = max(problem.k, 1)
    limit = 8 * (k**0.5 * epsilon + k * 2.0**-24)
    return float(np.max(np.abs(np.asarray(got).astype(np.float64) - want))) / limit


def other_libraries(
    problem: Matmul, arrays: Sequence[np.ndarray]
) -> dict[str, Callable[[], object]]:
    """numpy for float32, PyTorch (oneDNN) where it is installed, as functions without arguments."""
    functions: dict[str, Callable[[], object]] = {}
    if problem.dtype == "float32":
        functions["numpy"] = lambda: np.matmul(*arrays)
    try:
        import torch
    except ImportError:
        return functions
    tensors = [
        torch.from_numpy(a.astype(np.float32)).to(getattr(torch, problem.dtype)) for a in arrays
    ]
    functions["torch"] = lambda: torch.matmul(*tensors)
    return functions
