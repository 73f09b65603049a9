"""Operands, references and tolerances of a problem: what a candidate is checked and timed against.

In: a Problem. Out: random operands, the XLA formulation that is the baseline, float64 values of
sampled results computed by numpy alone, and the tolerance that goes with them. It must not know
schedules, executors or time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.ops import SLOPES
from jaxpipe.kernel import BufferRole
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem

Array = np.ndarray
Operands = Mapping[BufferRole, jax.Array | Array]
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "none": lambda x: x,
    "relu": jax.nn.relu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_erf": functools.partial(jax.nn.gelu, approximate=False),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
# wgmma cuts TF32 operands off: 2^-10 of the sum on average, which a bias may cancel (4 sigma).
TF32_ERROR = 2.0**-8
_ERF = np.vectorize(math.erf, otypes=[np.float64])
_NUMPY_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + _ERF(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def operand_shapes(problem: Problem) -> dict[BufferRole, tuple[tuple[int, ...], str]]:
    """Shape as stored and dtype of every operand, in the order of the call."""
    if isinstance(problem, Matmul):
        lhs = _stored(problem.batch, problem.m, problem.k, problem.lhs)
        rhs = _stored(problem.batch, problem.k, problem.n, problem.rhs)
    else:
        lhs = (problem.batch, problem.height, problem.width, problem.in_channels)
        rhs = (*problem.kernel, problem.in_channels, problem.out_channels)
    shapes: dict[BufferRole, tuple[tuple[int, ...], str]]
    shapes = {"lhs": (lhs, problem.dtype), "rhs": (rhs, problem.dtype)}
    if problem.epilogue.bias != "none":
        size = problem.n if problem.epilogue.bias == "column" else problem.m
        shapes["bias"] = ((size,), problem.bias_dtype)
    if problem.epilogue.residual:
        shapes["residual"] = (result_shape(problem), problem.out_dtype)
    return shapes


def result_shape(problem: Problem) -> tuple[int, ...]:
    """Shape of the result, and of the saved pre-activation."""
    if isinstance(problem, Matmul):
        return (*problem.batch, problem.m, problem.n)
    return (problem.batch, problem.out_height, problem.out_width, problem.out_channels)


@functools.partial(jax.jit, static_argnums=0)
def _random_operands(problem: Problem, seed: jax.Array) -> dict[BufferRole, jax.Array]:
    keys = jax.random.split(jax.random.key(seed), 4)
    scale = {"rhs": 1.0 / math.sqrt(max(problem.k, 1))}
    return {
        role: _random(key, shape, dtype, scale.get(role, 1.0))
        for key, (role, (shape, dtype)) in zip(keys, operand_shapes(problem).items(), strict=False)
    }


def random_operands(problem: Problem, seed: int) -> dict[BufferRole, jax.Array]:
    """Fresh operands on the default device; results have variance near 1 (integers: small)."""
    operands: dict[BufferRole, jax.Array] = _random_operands(problem, jnp.uint32(seed))
    return operands


def numpy_operands(problem: Problem, seed: int) -> dict[BufferRole, Array]:
    """The like of `random_operands` in numpy, without JAX compiling anything: for interpreters.

    An operand with strides of its own is a flat array that ends with its last element.
    """
    rng = np.random.default_rng(seed)
    scale = {"rhs": 1.0 / math.sqrt(max(problem.k, 1))}
    found: dict[BufferRole, Array] = {}
    for role, shape, dtype in _numpy_shapes(problem):
        wide = (
            scale.get(role, 1.0) * rng.standard_normal(shape)
            if DTYPES[dtype].is_float
            else rng.integers(-8, 8, shape)
        )
        found[role] = wide.astype(jnp.dtype(dtype))
    return found


def _numpy_shapes(problem: Problem) -> Iterator[tuple[BufferRole, tuple[int, ...], str]]:
    if isinstance(problem, Matmul):
        dense = replace(problem, lhs=_dense(problem.lhs), rhs=_dense(problem.rhs))
        shapes = operand_shapes(dense)
        for role in ("lhs", "rhs"):
            if (placed := _placed(problem, role)) != _placed(dense, role):
                shapes[role] = (_span(problem.batch, placed), problem.dtype)
    else:
        shapes = operand_shapes(problem)
    yield from ((role, shape, dtype) for role, (shape, dtype) in shapes.items())


def _dense(layout: Layout) -> Layout:
    return Layout(layout.transposed)


def _span(
    batch: tuple[int, ...], placed: tuple[Layout, int, int, int, tuple[int, ...]]
) -> tuple[int]:
    """Elements from the first of an operand to its last."""
    layout, rows, columns, ld, strides = placed
    lines, width = (columns, rows) if layout.transposed else (rows, columns)
    if lines * width * math.prod(batch) == 0:
        return (0,)
    far = sum((size - 1) * step for size, step in zip(batch, strides, strict=True))
    return (far + (lines - 1) * ld + width,)


def xla_function(problem: Problem, *, exact: bool) -> Callable[..., tuple[jax.Array, ...]]:
    """The problem as plain lax operations on operands by role.

    exact: sums and epilogue stay in the accumulator's type until the one final rounding, as in
    our kernels: the reference. Else the product has the result's dtype, as users write it and as
    XLA does best: the baseline.
    """
    dtype = problem.accumulator if exact else problem.out_dtype

    def function(
        lhs: jax.Array,
        rhs: jax.Array,
        bias: jax.Array | None = None,
        residual: jax.Array | None = None,
    ) -> tuple[jax.Array, ...]:
        product: Any = _dot if isinstance(problem, Matmul) else _conv
        acc = product(problem, lhs, rhs, jnp.dtype(dtype))
        return _epilogue(problem, acc, bias, residual)

    return function


def expected(problem: Problem, operands: Operands, rows: Array, cols: Array) -> tuple[Array, ...]:
    """float64 results at `rows` (of batch * m, flattened) x `cols` (of n), by numpy alone.

    One array of [rows, cols], or two when the epilogue saves its pre-activation.
    """
    sums: Any = _matmul_rows if isinstance(problem, Matmul) else _conv_rows
    acc = problem.epilogue.alpha * sums(problem, operands, rows, cols)
    if problem.epilogue.bias != "none":
        bias = np.asarray(operands["bias"]).astype(np.float64)
        acc = acc + (
            bias[cols] if problem.epilogue.bias == "column" else bias[rows % problem.m, None]
        )
    read: Array = np.zeros(())
    if problem.epilogue.residual:
        flat = np.asarray(operands["residual"]).reshape(-1, problem.n)
        read = flat[rows][:, cols].astype(np.float64)
    if problem.epilogue.residual_first:
        acc = acc + read
    out = _NUMPY_ACTIVATIONS[problem.epilogue.activation](acc)
    if problem.epilogue.residual and not problem.epilogue.residual_first:
        gate = SLOPES.get(problem.epilogue.derivative)
        out = out + read if gate is None else out * gate(read)
    return (out, acc) if problem.epilogue.save_preactivation else (out,)


def sampled_error(
    problem: Problem, operands: Operands, results: tuple[jax.Array, ...], samples: int = 64
) -> float:
    """Largest error of up to `samples` rows x columns against float64, relative to `tolerance`."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(problem.batch_size * problem.m)[:samples])
    cols = np.sort(rng.permutation(problem.n)[:samples])
    worst = 0.0
    for y, wanted in zip(results, expected(problem, operands, rows, cols), strict=True):
        got = np.asarray(y).reshape(-1, problem.n)[rows][:, cols].astype(np.float64)
        scaled = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted))
        worst = float(np.maximum(worst, np.max(scaled, initial=0.0)))
    return worst / max(tolerance(problem), 1e-12)


def tolerance(problem: Problem) -> float:
    """Largest admissible |got - expected| / max(1, |expected|) for `random_operands`.

    One rounding of the result, float32 sums of k terms and products of TF32 operands where the
    problem permits them (both scaled by alpha), and the hardware's approximate tanh and exp for
    16-bit results.
    """
    if not DTYPES[problem.out_dtype].is_float:
        return 0.0 if problem.epilogue.is_identity else 1e-5
    out_eps = float(jnp.finfo(problem.out_dtype).eps)
    sums = 4 * 2.0**-24 * math.sqrt(max(problem.k, 1))
    tf32 = TF32_ERROR if problem.dtype == "float32" and problem.precision == "tf32" else 0.0
    used = {problem.epilogue.activation, problem.epilogue.derivative}
    approximate = 0.0 if used <= {"none", "relu"} else 2.0**-10
    scale = max(1.0, abs(problem.epilogue.alpha))
    # Products with an approximate slope may round to neighbours, a whole unit apart.
    store = 0.75 if problem.epilogue.derivative in ("none", "relu") else 1.0
    return store * out_eps + scale * (sums + tf32) + (approximate if out_eps > 1e-5 else 1e-5)


def _stored(batch: tuple[int, ...], rows: int, cols: int, layout: Layout) -> tuple[int, ...]:
    if layout.ld or layout.batch_strides:
        raise NotImplementedError("operands with strides of their own cannot be made here")
    return (*batch, cols, rows) if layout.transposed else (*batch, rows, cols)


def _random(key: jax.Array, shape: tuple[int, ...], dtype: str, scale: float) -> jax.Array:
    if not DTYPES[dtype].is_float:
        return jax.random.randint(key, shape, -8, 8, jnp.int32).astype(dtype)
    return (scale * jax.random.normal(key, shape, jnp.float32)).astype(dtype)


def _dot(problem: Matmul, lhs: jax.Array, rhs: jax.Array, dtype: jnp.dtype) -> jax.Array:
    rank = len(problem.batch)
    batch = tuple(range(rank))
    contract = ((rank + (not problem.lhs.transposed),), (rank + problem.rhs.transposed,))
    dimensions = (contract, (batch, batch))
    return lax.dot_general(lhs, rhs, dimensions, _precision(problem), dtype)


def _conv(problem: Conv2d, lhs: jax.Array, rhs: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return lax.conv_general_dilated(
        lhs, rhs, problem.stride, problem.padding, rhs_dilation=problem.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=_precision(problem),
        preferred_element_type=dtype,
    )  # fmt: skip


def _precision(problem: Problem) -> lax.Precision | None:
    is_exact = problem.dtype == "float32" and problem.precision == "float32"
    return lax.Precision.HIGHEST if is_exact else None


def _epilogue(
    problem: Problem, acc: jax.Array, bias: jax.Array | None, residual: jax.Array | None
) -> tuple[jax.Array, ...]:
    epilogue, out = problem.epilogue, jnp.dtype(problem.out_dtype)
    if epilogue.alpha != 1.0:
        acc = acc * jnp.asarray(epilogue.alpha, acc.dtype)
    if bias is not None:
        acc = acc + bias.astype(acc.dtype)[(slice(None), None) if epilogue.bias == "row" else None]
    if residual is not None and epilogue.residual_first:
        acc, residual = acc + residual.astype(acc.dtype), None
    y = ACTIVATIONS[epilogue.activation](acc)
    if residual is not None and epilogue.derivative != "none":
        z = residual.astype(y.dtype)
        y = jax.vjp(ACTIVATIONS[epilogue.derivative], z)[1](y)[0]
    elif residual is not None:
        y = y + residual.astype(y.dtype)
    return (y.astype(out), acc.astype(out)) if epilogue.save_preactivation else (y.astype(out),)


def _matmul_rows(problem: Matmul, operands: Operands, rows: Array, cols: Array) -> Array:
    lhs, rhs = (_matrices(operands[role], role, problem) for role in ("lhs", "rhs"))
    result = np.empty((len(rows), len(cols)))
    for batch in np.unique(rows // problem.m):
        here = rows // problem.m == batch
        left = lhs[batch][rows[here] % problem.m].astype(np.float64)
        result[here] = left @ rhs[batch][:, cols].astype(np.float64)
    return result


def _matrices(operand: jax.Array | Array, role: BufferRole, problem: Matmul) -> Array:
    """[batch, rows, columns] of an operand whose memory is as its layout says."""
    layout, rows, columns, ld, strides = _placed(problem, role)
    lines, width = (columns, rows) if layout.transposed else (rows, columns)
    flat = np.asarray(operand).reshape(-1)
    if flat.size == 0:
        return np.zeros((problem.batch_size, rows, columns), flat.dtype)
    at = np.zeros((), np.int64)
    for size, step in zip((*problem.batch, lines, width), (*strides, ld, 1), strict=True):
        at = at[..., None] + step * np.arange(size)
    stored = flat[at].reshape(problem.batch_size, lines, width)
    return stored.swapaxes(1, 2) if layout.transposed else stored


def _placed(p: Matmul, role: BufferRole) -> tuple[Layout, int, int, int, tuple[int, ...]]:
    """Layout, logical rows and columns, leading dimension and batch strides of an operand."""
    if role == "lhs":
        return p.lhs, p.m, p.k, p.lhs_ld, p.lhs_batch_strides
    return p.rhs, p.k, p.n, p.rhs_ld, p.rhs_batch_strides


def _conv_rows(problem: Conv2d, operands: Operands, rows: Array, cols: Array) -> Array:
    """Sums over filter taps: each tap is one gathered pixel per row, zero outside the image."""
    image = np.asarray(operands["lhs"])
    weights = np.asarray(operands["rhs"])[..., cols].astype(np.float64)
    pixels = problem.out_height * problem.out_width
    entry, oh, ow = rows // pixels, rows % pixels // problem.out_width, rows % problem.out_width
    result = np.zeros((len(rows), len(cols)))
    for kh in range(problem.kernel[0]):
        for kw in range(problem.kernel[1]):
            h = oh * problem.stride[0] - problem.padding[0][0] + kh * problem.dilation[0]
            w = ow * problem.stride[1] - problem.padding[1][0] + kw * problem.dilation[1]
            inside = (h >= 0) & (h < problem.height) & (w >= 0) & (w < problem.width)
            taps = np.zeros((len(rows), problem.in_channels))
            taps[inside] = image[entry[inside], h[inside], w[inside]]
            result += taps @ weights[kh, kw]  # the padding's zeros too: 0 * NaN is NaN
    return result
