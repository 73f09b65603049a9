"""Run a drawn Hopper point in the interpreter and compare with numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from jaxpipe.compiler import compile_kernel
from jaxpipe.kernel import Kernel
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import Buffer, Mode, run_launches
from jaxpipe.schedule import GpuSchedule

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * np.vectorize(math.erfc)(-x / math.sqrt(2)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}
# Relative to the largest result: one rounding of the store, and sums in float32 (or TF32 operands).
LIMITS = {"bfloat16": 2.0**-8, "float16": 2.0**-10, "float32": 2.0**-14, "int32": 0.0}
TF32_LIMIT = 2.0**-9
Arrays = dict[str, np.ndarray]


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith("int"):
        return rng.integers(-8, 9, shape).astype(numpy_dtype(dtype))
    scaled = rng.standard_normal(shape) / 2
    return scaled.astype(numpy_dtype(dtype))


def inputs(problem: Problem, seed: int) -> Arrays:
    """Random operands of a problem by role, laid out as it says."""
    rng = np.random.default_rng(seed)
    if isinstance(problem, Conv2d):
        image = (problem.batch, problem.height, problem.width, problem.in_channels)
        shapes = {"lhs": image, "rhs": (*problem.kernel, problem.in_channels, problem.n)}
    else:
        shapes = {
            "lhs": (_stored(problem.lhs, problem.batch, problem.m, problem.k, problem.lhs_ld,
                            problem.lhs_batch_strides),),
            "rhs": (_stored(problem.rhs, problem.batch, problem.k, problem.n, problem.rhs_ld,
                            problem.rhs_batch_strides),),
        }  # fmt: skip
    arrays = {role: _values(rng, shape, problem.dtype) for role, shape in shapes.items()}
    e = problem.epilogue
    if e.bias != "none":
        size = problem.n if e.bias == "column" else problem.m
        arrays["bias"] = _values(rng, (size,), problem.bias_dtype)
    if e.residual:
        shape = (problem.batch_size * problem.m, problem.n)
        arrays["residual"] = _values(rng, shape, problem.out_dtype)
    return arrays


def _stored(
    layout: Layout,
    batch: tuple[int, ...],
    rows: int,
    columns: int,
    ld: int,
    strides: tuple[int, ...],
) -> int:
    lines, width = (columns, rows) if layout.transposed else (rows, columns)
    if lines * width == 0:
        return 0
    far = sum((n - 1) * s for n, s in zip(batch, strides, strict=True))
    return -(-(far + (lines - 1) * ld + width) // 4) * 4  # XLA's buffers end on whole words


def expected(problem: Problem, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Pre-activation and result in float64, as (batch * m, n)."""
    wide = {role: array.astype(np.float64) for role, array in arrays.items()}
    product = _convolved(problem, wide) if isinstance(problem, Conv2d) else _product(problem, wide)
    e = problem.epilogue
    before = e.alpha * product
    if e.bias == "column":
        before = before + wide["bias"]
    if e.bias == "row":
        before = before + np.tile(wide["bias"], problem.batch_size)[:, None]
    if e.residual_first:
        before = before + wide["residual"]
    after = ACTIVATIONS[e.activation](before)
    return before, after + wide["residual"] if e.residual and not e.residual_first else after


def _product(p: Matmul, wide: Mapping[str, np.ndarray]) -> np.ndarray:
    lhs = _view(wide["lhs"], p.lhs, p.batch, p.m, p.k, p.lhs_ld, p.lhs_batch_strides)
    rhs = _view(wide["rhs"], p.rhs, p.batch, p.k, p.n, p.rhs_ld, p.rhs_batch_strides)
    return (lhs @ rhs).reshape(p.batch_size * p.m, p.n)


def _view(
    flat: np.ndarray, layout: Layout, batch: tuple[int, ...], rows: int, columns: int, ld: int,
    strides: tuple[int, ...],
) -> np.ndarray:  # fmt: skip
    lines, width = (columns, rows) if layout.transposed else (rows, columns)
    if lines * width == 0:
        return np.zeros((*batch, rows, columns))
    steps = tuple(8 * s for s in (*strides, ld, 1))
    view = np.lib.stride_tricks.as_strided(flat, (*batch, lines, width), steps)
    return view.swapaxes(-1, -2) if layout.transposed else view


def _convolved(p: Conv2d, wide: Mapping[str, np.ndarray]) -> np.ndarray:
    image = np.pad(wide["lhs"], ((0, 0), *p.padding, (0, 0)))
    total = np.zeros((p.batch, p.out_height, p.out_width, p.n))
    for r in range(p.kernel[0]):
        for s in range(p.kernel[1]):
            y, x = r * p.dilation[0], s * p.dilation[1]
            rows = slice(y, y + (p.out_height - 1) * p.stride[0] + 1, p.stride[0])
            columns = slice(x, x + (p.out_width - 1) * p.stride[1] + 1, p.stride[1])
            total += image[:, rows, columns] @ wide["rhs"][r, s]
    return total.reshape(p.m, p.n)


def run_point(problem: Problem, schedule: GpuSchedule, mode: Mode, seed: int = 0) -> Report:
    """Interpret the kernel in one mode, check its results, hand back the report."""
    kernel = compile_kernel(problem, schedule, "sm_90a", line_info=True)
    return run_kernel(kernel.kernel, kernel.ptx, mode, seed)


def run_kernel(kernel: Kernel, ptx: str, mode: Mode, seed: int = 0) -> Report:
    """The same for PTX that may differ from what the kernel's source gives."""
    problem = kernel.problem
    arrays = inputs(problem, seed)
    shape = (problem.batch_size * problem.m, problem.n)
    out = {"out": np.zeros(shape, numpy_dtype(problem.out_dtype))}
    if problem.epilogue.save_preactivation:
        out["preactivation"] = np.zeros_like(out["out"])
    held = {role: Buffer(a, writable=False) for role, a in arrays.items()}
    held |= {role: Buffer(a, written=False) for role, a in out.items()}
    workspace = np.zeros(max(kernel.workspace_bytes, 1), np.uint8)
    held["workspace"] = Buffer(workspace, written=False)
    report = run_launches(ptx, kernel.launches, held, mode)
    before, after = expected(problem, arrays)
    # TF32 rounds the operands, the store rounds the result: the two errors add.
    limit = LIMITS[problem.out_dtype] + (TF32_LIMIT if problem.dtype == "float32" else 0.0)
    _close(out["out"], after, limit)
    if "preactivation" in out:
        _close(out["preactivation"], before, limit)
    return report


def _close(got: np.ndarray, want: np.ndarray, limit: float) -> None:
    scale = max(float(np.abs(want).max(initial=0.0)), 1e-6)
    error = float(np.abs(got.astype(np.float64) - want).max(initial=0.0)) / scale
    assert error <= limit, f"error {error:.2e} of the largest result, at most {limit:.2e}"
