"""Convolutions of the host executor: implicit products against float64."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

from jaxpipe import _native
from jaxpipe.epilogue import Epilogue
from jaxpipe.problem import Conv2d
from jaxpipe.runtime import host
from jaxpipe.schedule import HostSchedule

FLOATS = ("float32", "bfloat16", "float16")
CASES = {
    "3x3 padded": Conv2d(2, 9, 11, 3, 20, (3, 3), padding=((1, 1), (1, 1))),
    "7x7 stride 2": Conv2d(1, 14, 13, 4, 40, (7, 7), (2, 2), ((3, 3), (2, 3))),
    "dilated, one-sided": Conv2d(1, 12, 12, 5, 33, (3, 2), (2, 1), ((0, 2), (4, 0)), (2, 3)),
    "pointwise": Conv2d(2, 8, 8, 32, 64, (1, 1)),
    "pointwise stride 2": Conv2d(2, 9, 8, 32, 64, (1, 1), (2, 2)),
    "filter wider than the image": Conv2d(1, 2, 3, 2, 8, (5, 7), padding=((2, 2), (3, 3))),
}
SCHEDULES = [
    HostSchedule(),
    HostSchedule(block_m=14, block_k=32, pack="shared", order="row"),
    HostSchedule(block_k=6, threads=1, stages=1),
]


def typed(problem: Conv2d, dtype: str, **fields: object) -> Conv2d:
    names = ("batch", "height", "width", "in_channels", "out_channels", "kernel", "stride")
    values = {n: getattr(problem, n) for n in (*names, "padding", "dilation")}
    return Conv2d(**values, dtype=dtype, **fields)


def operands(problem: Conv2d) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    image = (problem.batch, problem.height, problem.width, problem.in_channels)
    taps = (*problem.kernel, problem.in_channels, problem.out_channels)
    return tuple(rng.standard_normal(s).astype(problem.dtype) for s in (image, taps))


def reference(problem: Conv2d, x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Tap by tap in float64."""
    x, f = x.astype(np.float64), f.astype(np.float64)
    x = np.pad(x, ((0, 0), *problem.padding, (0, 0)))
    shape = (problem.batch, problem.out_height, problem.out_width, problem.out_channels)
    out = np.zeros(shape)
    (sh, sw), (dh, dw) = problem.stride, problem.dilation
    for i, j in itertools.product(*map(range, problem.kernel)):
        rows = slice(i * dh, i * dh + (shape[1] - 1) * sh + 1, sh)
        cols = slice(j * dw, j * dw + (shape[2] - 1) * sw + 1, sw)
        out += x[:, rows, cols] @ f[i, j]
    return out


def run(problem: Conv2d, schedule: HostSchedule, *xs: np.ndarray) -> tuple[np.ndarray, ...]:
    call = jax.jit(lambda *xs: host.call(problem, schedule, *xs))
    return tuple(np.asarray(y) for y in call(*xs))


@pytest.mark.parametrize("isa", _native.host_info()["isas"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES)
def test_every_isa_matches_float64(case, dtype, isa):
    problem = typed(CASES[case], dtype, out_dtype="float32")
    xs = operands(problem)
    (y,) = run(problem, HostSchedule(isa=isa), *xs)
    atol = 8 * (problem.k + 1) * 2.0**-24
    np.testing.assert_allclose(y, reference(problem, *xs), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES)
def test_no_bit_depends_on_the_schedule(case, dtype):
    problem = typed(CASES[case], dtype)
    xs = operands(problem)
    results = [run(problem, schedule, *xs)[0].tobytes() for schedule in SCHEDULES]
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_epilogue_is_fused(dtype):
    epilogue = Epilogue(bias="column", activation="relu", residual=True, save_preactivation=True)
    problem = typed(CASES["3x3 padded"], dtype, epilogue=epilogue)
    x, f = operands(problem)
    bias = np.linspace(-1, 1, problem.n).astype(dtype)
    pre = reference(problem, x, f) + bias.astype(np.float64)
    residual = np.random.default_rng(8).standard_normal(pre.shape).astype(dtype)
    got = run(problem, HostSchedule(), x, f, bias, residual)
    epsilon = {"float32": 2.0**-21, "bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    wants = (np.maximum(pre, 0) + residual.astype(np.float64), pre)
    for y, want in zip(got, wants, strict=True):
        np.testing.assert_allclose(y.astype(np.float64), want, rtol=0, atol=60 * epsilon)


def test_an_empty_result_is_returned_empty():
    problem = Conv2d(1, 2, 2, 3, 4, (3, 3), dtype="float32")
    (y,) = run(problem, HostSchedule(), *operands(problem))
    assert y.shape == (1, 0, 0, 4)


def test_no_channels_give_zeros():
    problem = Conv2d(1, 4, 4, 0, 4, (3, 3), dtype="float32")
    (y,) = run(problem, HostSchedule(), *operands(problem))
    np.testing.assert_array_equal(y, np.zeros((1, 2, 2, 4)))


def test_an_image_of_another_size_is_refused():
    problem = typed(CASES["3x3 padded"], "float32")
    x, f = operands(problem)
    elements = math.prod(x.shape)
    with pytest.raises(Exception, match=rf"image's size is {elements - 99}"):
        run(problem, HostSchedule(), x.reshape(-1)[99:], f)
