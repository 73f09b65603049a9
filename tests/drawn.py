"""Problems and legal schedules drawn for property tests, their inputs and their right results."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxpipe.dtypes import DTYPES
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.ir.ops import OPS, round_to
from jaxpipe.legality import check
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch, arch
from jaxpipe.transform.build import build

Array = NDArray[np.float64]
DTYPE_NAMES = ("bfloat16", "float16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")


def draw_epilogue(rng: random.Random, dtype: str) -> Epilogue:
    bias = rng.choice(["none", "column", "row"])
    if dtype == "int8":
        return Epilogue(bias=bias, residual=rng.random() < 0.3)
    return Epilogue(
        alpha=rng.choice([1.0, 2.0]),
        bias=bias,
        activation=rng.choice(["none", "relu"]),
        residual=rng.random() < 0.3,
        save_preactivation=rng.random() < 0.3,
    )


def draw_matmul(rng: random.Random, dtype: str) -> Matmul:
    batch = tuple(rng.randint(1, 3) for _ in range(rng.choice([0, 0, 1, 2])))
    return Matmul(
        rng.randint(1, 70), rng.randint(1, 70), rng.choice([0, 1, 7, 16, 33, 64, 100, 130]),
        batch=batch, dtype=dtype, lhs=Layout(rng.random() < 0.5), rhs=Layout(rng.random() < 0.5),
        epilogue=draw_epilogue(rng, dtype), precision="tf32",
    )  # fmt: skip


def draw_conv(rng: random.Random, dtype: str) -> Conv2d:
    pads = [rng.randint(0, 1) for _ in range(4)]
    return Conv2d(
        rng.randint(1, 2), rng.randint(4, 9), rng.randint(4, 9), rng.choice([3, 8, 16, 20]),
        rng.randint(1, 40), (rng.randint(1, 3), rng.randint(1, 3)),
        (rng.randint(1, 2), rng.randint(1, 2)), ((pads[0], pads[1]), (pads[2], pads[3])),
        (1, rng.randint(1, 2)), dtype=dtype, epilogue=draw_epilogue(rng, dtype), precision="tf32",
    )  # fmt: skip


def draw_schedule(rng: random.Random, problem: Problem) -> GpuSchedule:
    size = DTYPES[problem.dtype].size_bytes
    warps_m, warps_n = rng.choice([1, 2, 4]), rng.choice([1, 2])
    return GpuSchedule(
        block_m=16 * warps_m * rng.choice([1, 2, 3]),
        block_n=16 * warps_n * rng.choice([1, 2, 3]),
        block_k=rng.choice([32, 64, 128, 256]) // size,
        warps_m=warps_m,
        warps_n=warps_n,
        smem_stages=rng.randint(1, 5),
        reg_stages=rng.choice([1, 2, 2, 4]),
        swizzle=rng.random() < 0.85,
        split_k=rng.choice([1, 1, 2, 3]) if isinstance(problem, Matmul) else 1,
    )


def draw(seed: int) -> tuple[Problem, GpuSchedule, Arch]:
    """A problem with a result, and a schedule that is legal for it on the target."""
    rng = random.Random(seed)
    dtype = rng.choice(DTYPE_NAMES)
    target = arch("sm_89" if dtype.startswith("float8") else rng.choice(["sm_80", "sm_86"]))
    while True:
        make = draw_matmul if rng.random() < 0.6 else draw_conv
        problem = make(rng, dtype)
        schedule = draw_schedule(rng, problem)
        if not problem.is_empty and not check(schedule, problem, target):
            return problem, schedule, target


def draw_residual_first(seed: int) -> tuple[Problem, GpuSchedule, Arch]:
    """As `draw`, with the relu of a sum and a residual as epilogue."""
    for again in itertools.count(10_000 * (seed + 1)):
        problem, schedule, target = draw(again)
        epilogue = replace(problem.epilogue, activation="relu", residual=True, residual_first=True)
        problem = replace(problem, epilogue=epilogue)
        if not check(schedule, problem, target):
            return problem, schedule, target
    raise AssertionError("no end")


SM_80 = arch("sm_80")
SM_80_DTYPES = ("bfloat16", "bfloat16", "float16", "float32", "int8")


def draw_sm80(seed: int) -> tuple[Problem, GpuSchedule]:
    """A problem with any epilogue and a schedule that is legal for it on sm_80."""
    rng = random.Random(seed)
    dtype = rng.choice(SM_80_DTYPES)
    while True:
        make = draw_matmul if rng.random() < 0.65 else draw_conv
        problem = make(rng, dtype)
        if dtype != "int8":
            problem = replace(
                problem,
                out_dtype=rng.choice(["", "", "", "float32"]) or problem.out_dtype,
                epilogue=replace(
                    problem.epilogue,
                    activation=rng.choice(ACTIVATIONS),  # type: ignore[arg-type]
                    bias_dtype=rng.choice(["", "float32"]),
                ),
            )
        schedule = draw_schedule(rng, problem)
        if not problem.is_empty and not check(schedule, problem, SM_80):
            return problem, schedule


def inputs(problem: Problem, seed: int) -> dict[str, Array]:
    """Small whole numbers in the shapes of the nest's parameters: every sum is exact."""
    rng = np.random.default_rng(seed)
    found = {}
    for p in build(problem).params:
        if p.role not in ("out", "preactivation"):
            shape = p.shape
            if p.window is not None:
                assert isinstance(problem, Conv2d)
                shape = (problem.batch, problem.height, problem.width, problem.in_channels)
            found[p.name] = rng.integers(-3, 4, shape).astype(np.float64)
    return found


def expected(problem: Problem, arrays: dict[str, Array]) -> dict[str, Array]:
    """The result, and the pre-activation, in numpy."""
    e = problem.epilogue
    is_matmul = isinstance(problem, Matmul)
    value = e.alpha * (_matmul if is_matmul else _conv)(problem, arrays)  # type: ignore[arg-type]
    if e.bias != "none":
        value = value + (arrays["bias"] if e.bias == "column" else arrays["bias"][:, None])
    if e.residual_first:
        value = value + arrays["residual"].reshape(value.shape)
    results = {"preactivation": round_to(problem.out_dtype, value)}
    if e.activation != "none":
        value = OPS[e.activation].apply(value, np.float64(0))
    if e.residual and not e.residual_first:
        op = "add" if e.derivative == "none" else f"derivative_{e.derivative}"
        value = OPS[op].apply(value, arrays["residual"].reshape(value.shape))
    return {**results, "out": round_to(problem.out_dtype, value)}


def _matmul(problem: Matmul, arrays: dict[str, Array]) -> Array:
    lhs, rhs = arrays["lhs"], arrays["rhs"]
    lhs = np.swapaxes(lhs, -1, -2) if problem.lhs.transposed else lhs
    rhs = np.swapaxes(rhs, -1, -2) if problem.rhs.transposed else rhs
    return np.matmul(lhs, rhs)


def _conv(p: Conv2d, arrays: dict[str, Array]) -> Array:
    image = arrays["lhs"].reshape(p.batch, p.height, p.width, p.in_channels)
    image = np.pad(image, ((0, 0), *p.padding, (0, 0)))
    weights = arrays["rhs"].reshape(*p.kernel, p.in_channels, p.n)
    total = np.zeros((p.batch, p.out_height, p.out_width, p.n))
    for i, j in np.ndindex(*p.kernel):
        top, left = i * p.dilation[0], j * p.dilation[1]
        rows = slice(top, top + p.stride[0] * (p.out_height - 1) + 1, p.stride[0])
        columns = slice(left, left + p.stride[1] * (p.out_width - 1) + 1, p.stride[1])
        total += image[:, rows, columns] @ weights[i, j]
    return total.reshape(p.m, p.n)


def assert_equal(problem: Problem, got: dict[str, Any], want: dict[str, Array]) -> None:
    """The results are those expected, exactly."""
    names = ["out", *(["preactivation"] if problem.epilogue.save_preactivation else [])]
    for name in names:
        value = np.asarray(got[name], dtype=np.float64)
        np.testing.assert_array_equal(value, want[name].reshape(value.shape), err_msg=name)


def with_schedule(schedule: GpuSchedule, **changes: Any) -> GpuSchedule:
    """`schedule` with fields replaced."""
    return replace(schedule, **changes)
