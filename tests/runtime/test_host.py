"""The host executor through its FFI call: values against float64, bits, layouts, edges, errors."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxpipe import _native
from jaxpipe.epilogue import Activation, Epilogue
from jaxpipe.errors import ScheduleError, SettingError, UnsupportedError
from jaxpipe.problem import Layout, Matmul
from jaxpipe.runtime import host
from jaxpipe.schedule import HostSchedule

ISAS = _native.host_info()["isas"]
FLOATS = ("float32", "bfloat16", "float16")
EPSILON = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
SHAPES = [(1, 1, 1), (1, 33, 7), (3, 64, 65), (16, 96, 40), (31, 70, 129), (100, 130, 257)]
SCHEDULES = [
    HostSchedule(),
    HostSchedule(path="stream", strip=96),
    HostSchedule(strip=32, rows=5, order="row", stages=1),
    HostSchedule(block_k=16, block_m=7, strip=96),
    HostSchedule(pack="shared", copy_lhs=True, block_m=13, block_k=48),
    HostSchedule(pack="shared", order="row", strip=64, threads=1),
]


def tolerance(k: int, out_dtype: str) -> float:
    """Of a sum of k products of standard normals: float32 sums, one rounding to out_dtype."""
    scale = 4 * math.sqrt(k + 1)
    return scale * (EPSILON["float32"] * 2 * math.sqrt(k + 1) + EPSILON[out_dtype])


def operand(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # ml_dtypes raises it for signalling NaN
        return np.asarray(x).astype(np.float64)


def run(problem: Matmul, schedule: HostSchedule, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    bias_at = 2 if problem.epilogue.bias != "none" else None
    residual_at = (3 if bias_at else 2) if problem.epilogue.residual else None

    def f(*xs: jax.Array) -> tuple[jax.Array, ...]:
        bias = xs[bias_at] if bias_at else None
        residual = xs[residual_at] if residual_at else None
        return host.call(problem, schedule, xs[0], xs[1], bias, residual)

    return tuple(np.asarray(y) for y in jax.jit(f)(*operands))


def product(m: int, n: int, k: int, dtype: str, layout: str = "nn", **fields: object):
    """(problem, operands, float64 product) of standard normal matrices."""
    a, b = operand(1, (m, k), dtype), operand(2, (k, n), dtype)
    lhs, rhs = Layout(layout[0] == "t"), Layout(layout[1] == "t")
    problem = Matmul(m, n, k, dtype=dtype, lhs=lhs, rhs=rhs, **fields)
    stored = (a.T.copy() if lhs.transposed else a, b.T.copy() if rhs.transposed else b)
    return problem, stored, wide(a) @ wide(b)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_isa_and_layout_matches_float64(shape, dtype, layout, isa):
    problem, operands, want = product(*shape, dtype, layout, out_dtype="float32")
    (y,) = run(problem, HostSchedule(isa=isa, strip=64), *operands)
    np.testing.assert_allclose(y, want, rtol=0, atol=tolerance(shape[2], "float32"))


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 70, 33), (14, 130, 257), (61, 96, 129)], ids=str)
def test_no_bit_depends_on_the_schedule(shape, dtype, layout):
    problem, operands, _ = product(*shape, dtype, layout)
    results = [run(problem, schedule, *operands)[0] for schedule in SCHEDULES]
    assert all(same_bits(results[0], y) for y in results[1:])


@pytest.mark.parametrize("threads", [1, 2, 3, 0])
@pytest.mark.parametrize("pack", ["item", "shared"])
def test_no_bit_depends_on_the_number_of_threads(threads, pack):
    problem, operands, _ = product(65, 200, 300, "bfloat16", "nn", out_dtype="float32")
    one = run(problem, HostSchedule(strip=32, threads=1), *operands)[0]
    many = run(problem, HostSchedule(strip=32, pack=pack, threads=threads), *operands)[0]
    assert same_bits(one, many)


@pytest.mark.parametrize("isa", [i for i in ISAS if i != "portable"])
def test_float32_sums_are_one_chain_of_fused_multiply_adds(isa):
    problem, (a, b), _ = product(4, 5, 50, "float32")
    (y,) = run(problem, HostSchedule(isa=isa), a, b)
    chain = np.zeros((4, 5), np.float32)
    for k in range(50):  # the product of two float32 is exact in float64, the sum nearly so
        chain = (np.outer(wide(a)[:, k], wide(b)[k]) + wide(chain)).astype(np.float32)
    np.testing.assert_array_max_ulp(y, chain, maxulp=1)


@pytest.mark.skipif("avx512_bf16" not in ISAS, reason="this CPU has no AVX512-BF16")
@pytest.mark.parametrize("path", ["packed", "stream"])
def test_bfloat16_instructions_sum_as_float32_chains_do(path):
    """vdpbf16ps takes each pair's odd k first: swap the pairs for the float32 kernels."""
    problem, (a, b), _ = product(9, 64, 256, "bfloat16", out_dtype="float32")
    swap = np.arange(256) ^ 1
    native = run(problem, HostSchedule(isa="avx512_bf16", path=path), a, b)[0]
    chain = run(problem, HostSchedule(isa="avx512"), a[:, swap].copy(), b[swap].copy())[0]
    assert same_bits(native, chain)


@pytest.mark.parametrize("out_dtype", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_result_is_rounded_once_to_any_float_type(dtype, out_dtype):
    problem, operands, _ = product(20, 40, 64, dtype, out_dtype="float32")
    exact = run(problem, HostSchedule(), *operands)[0]
    rounded = run(dataclasses.replace(problem, out_dtype=out_dtype), HostSchedule(), *operands)[0]
    assert same_bits(rounded, exact.astype(out_dtype))


def reference(name: str, x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf)
    table = {
        "none": lambda: x,
        "relu": lambda: np.maximum(x, 0),
        "gelu_tanh": lambda: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "gelu_erf": lambda: x / 2 * (1 + erf(x / math.sqrt(2))),
        "silu": lambda: x / (1 + np.exp(-x)),
        "tanh": lambda: np.tanh(x),
    }
    return table[name]()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["relu", "gelu_tanh", "gelu_erf", "silu", "tanh"])
def test_an_activation_is_within_float32_rounding(name: Activation, isa):
    x = np.linspace(-12, 12, 6400, dtype=np.float32).reshape(100, 64)
    problem = Matmul(100, 64, 64, dtype="float32", epilogue=Epilogue(activation=name))
    (y,) = run(problem, HostSchedule(isa=isa), x, np.eye(64, dtype=np.float32))
    error = np.abs(y - reference(name, wide(x))) / np.maximum(1, np.abs(x))
    assert error.max() < 2.5e-7


EPILOGUES = [
    Epilogue(alpha=0.125),
    Epilogue(bias="column"),
    Epilogue(bias="row", bias_dtype="float32"),
    Epilogue(residual=True),
    Epilogue(alpha=-2.0, bias="column", bias_dtype="float32", activation="gelu_erf", residual=True),
    Epilogue(bias="column", activation="silu", save_preactivation=True),
    Epilogue(alpha=3.0, bias="row", activation="tanh", residual=True, save_preactivation=True),
    Epilogue(2.0, "row", "", "tanh", residual=True, save_preactivation=True, residual_first=True),
]


@pytest.mark.parametrize("schedule", [SCHEDULES[0], SCHEDULES[1], SCHEDULES[3]], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=lambda e: e.describe())
def test_an_epilogue_matches_its_definition(epilogue, dtype, schedule):
    m, n, k = 13, 70, 33
    problem, operands, acc = product(m, n, k, dtype, epilogue=epilogue)
    extra = []
    pre = epilogue.alpha * acc
    if epilogue.bias != "none":
        length = n if epilogue.bias == "column" else m
        extra.append(operand(3, (length,), problem.bias_dtype))
        pre = pre + (wide(extra[-1]) if epilogue.bias == "column" else wide(extra[-1])[:, None])
    if epilogue.residual:
        extra.append(operand(4, (m, n), dtype))
    added = wide(extra[-1]) if epilogue.residual else 0.0
    pre = pre + added if epilogue.residual_first else pre
    want = reference(epilogue.activation, pre) + (0.0 if epilogue.residual_first else added)
    got = run(problem, schedule, *operands, *extra)
    atol = 4 * max(1, abs(epilogue.alpha)) * tolerance(k, dtype)
    wants = (want, pre) if epilogue.save_preactivation else (want,)
    for y, w in zip(got, wants, strict=True):
        np.testing.assert_allclose(wide(y), w, rtol=0, atol=atol)


@pytest.mark.parametrize("schedule", [SCHEDULES[0], SCHEDULES[3]], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_attention_operands_need_no_transposed_copy(dtype, schedule):
    batch, length, heads, depth = 2, 19, 3, 24
    q, k = (operand(s, (batch, length, heads, depth), dtype) for s in (1, 2))
    strided = (length * heads * depth, depth)
    lhs, rhs = Layout(False, heads * depth, strided), Layout(True, heads * depth, strided)
    problem = Matmul(length, length, depth, (batch, heads), dtype, "float32", lhs, rhs)
    (y,) = run(problem, schedule, q, k)
    want = np.einsum("bqhd,bkhd->bhqk", wide(q), wide(k))
    np.testing.assert_allclose(y, want, rtol=0, atol=tolerance(depth, "float32"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m", [1, 9])
def test_a_batch_stride_of_zero_broadcasts_an_operand(dtype, m):
    x, w = operand(1, (2, 3, m, 20), dtype), operand(2, (20, 40), dtype)
    rhs = Layout(False, 0, (0, 0))
    problem = Matmul(m, 40, 20, (2, 3), dtype, "float32", Layout(), rhs)
    (y,) = run(problem, HostSchedule(), x, w)
    np.testing.assert_allclose(y, wide(x) @ wide(w), rtol=0, atol=tolerance(20, "float32"))


def test_a_row_bias_stays_with_its_batch_entry():
    x, w = operand(1, (4, 6, 20), "float32"), operand(2, (20, 40), "float32")
    epilogue = Epilogue(bias="row")
    problem = Matmul(6, 40, 20, (4,), "float32", rhs=Layout(False, 0, (0,)), epilogue=epilogue)
    bias = operand(3, (6,), "float32")
    (y,) = run(problem, HostSchedule(), x, w, bias)
    np.testing.assert_allclose(y, wide(x) @ wide(w) + bias[:, None], atol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 5, 3), (5, 0, 3), (0, 0, 0)], ids=str)
def test_an_empty_result_is_returned_empty(sizes):
    problem, operands, _ = product(*sizes, "float32")
    (y,) = run(problem, HostSchedule(), *operands)
    assert y.shape == sizes[:2]


@pytest.mark.parametrize("path", ["packed", "stream"])
def test_no_k_gives_the_epilogue_of_zeros(path):
    problem, operands, _ = product(3, 40, 0, "bfloat16", epilogue=Epilogue(bias="column"))
    bias = operand(3, (40,), "bfloat16")
    (y,) = run(problem, HostSchedule(path=path), *operands, bias)
    assert same_bits(y, np.broadcast_to(bias, (3, 40)).copy())


@pytest.mark.parametrize("schedule", SCHEDULES[:4], ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity_reach_only_their_rows_and_columns(dtype, schedule):
    problem, (a, b), _ = product(9, 37, 21, dtype, out_dtype="float32")
    a[2, 20], b[20, 33] = np.nan, np.inf
    (y,) = run(problem, schedule, a, b)
    expected = np.zeros((9, 37), bool)
    expected[2, :] = expected[:, 33] = True
    np.testing.assert_array_equal(~np.isfinite(y), expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["none", "relu", "gelu_tanh", "gelu_erf", "silu", "tanh"])
def test_special_values_pass_through_activations_as_in_xla(name: Activation, isa):
    functions = {
        "none": lambda x: x,
        "relu": lambda x: jnp.maximum(x, 0),
        "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
        "silu": jax.nn.silu,
        "tanh": jnp.tanh,
    }
    x = np.array([[np.nan], [np.inf], [-np.inf], [0.0], [1e4], [-1e4], [3e38]], np.float32)
    problem = Matmul(7, 1, 1, dtype="float32", epilogue=Epilogue(activation=name))
    (y,) = run(problem, HostSchedule(isa=isa), x, np.ones((1, 1), np.float32))
    np.testing.assert_allclose(y, functions[name](x), rtol=1e-6, atol=0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_16_bit_value_survives_a_product_with_one(dtype, isa):
    if dtype == "float32":
        values = np.float32([0, -0.0, 1e-30, 1e38, -3.4e38, np.inf, 1.5])
    else:
        values = np.arange(65536, dtype=np.uint16).view(dtype)
        values = values[np.isfinite(wide(values)) & (np.abs(wide(values)) > 1e-37)]
    problem = Matmul(len(values), 1, 1, dtype=dtype)
    (y,) = run(problem, HostSchedule(isa=isa), values[:, None].copy(), np.ones((1, 1), dtype))
    np.testing.assert_array_equal(wide(y)[:, 0], wide(values))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float16"])
def test_results_round_to_nearest_even(out_dtype, isa):
    bits = np.random.default_rng(5).integers(0, 2**32, 4096, dtype=np.uint32)
    ties = (np.arange(2048, dtype=np.uint32) << 16) + 0x3F008000
    x = np.concatenate([bits, ties, np.arange(2048, dtype=np.uint32) * 4096 + 0x38000000])
    x = x.view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) > 1e-37)]
    problem = Matmul(len(x), 1, 1, dtype="float32", out_dtype=out_dtype)
    (y,) = run(problem, HostSchedule(isa=isa), x[:, None].copy(), np.ones((1, 1), np.float32))
    with np.errstate(over="ignore"):
        want = x.astype(ml_dtypes.bfloat16 if out_dtype == "bfloat16" else np.float16)
    assert same_bits(y[:, 0], want)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_int8_products_are_exact(layout, isa):
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((17, 131), (131, 70)))
    a[3], b[:, 5] = -128, -128
    lhs, rhs = Layout(layout[0] == "t"), Layout(layout[1] == "t")
    stored = (a.T.copy() if lhs.transposed else a, b.T.copy() if rhs.transposed else b)
    problem = Matmul(17, 70, 131, dtype="int8", lhs=lhs, rhs=rhs)
    (y,) = run(problem, HostSchedule(isa=isa, block_k=32), *stored)
    np.testing.assert_array_equal(y, a.astype(np.int32) @ b.astype(np.int32))


def test_independent_products_inside_one_program_do_not_disturb_each_other():
    problem = Matmul(96, 256, 256, dtype="float32")
    xs = [operand(i, (96, 256), "float32") for i in range(8)]
    w = operand(9, (256, 256), "float32")
    f = jax.jit(lambda xs, w: [host.call(problem, HostSchedule(strip=32), x, w)[0] for x in xs])
    for _ in range(20):
        ys = f(xs, w)
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_allclose(y, wide(x) @ wide(w), atol=tolerance(256, "float32"))


def test_the_default_schedule_serves_any_problem():
    for shape in SHAPES:
        problem, operands, want = product(*shape, "float32")
        (y,) = run(problem, host.default_schedule(problem), *operands)
        np.testing.assert_allclose(y, want, atol=tolerance(shape[2], "float32"))


def test_a_dtype_that_is_not_served_is_refused_with_the_reason():
    problem = Matmul(4, 4, 4, dtype="float8_e4m3fn", out_dtype="bfloat16")
    with pytest.raises(UnsupportedError, match=r"operands is float8_e4m3fn; use implementation"):
        host.call(problem, HostSchedule(), *np.zeros((2, 4, 4), ml_dtypes.float8_e4m3fn))


def test_an_illegal_schedule_is_refused_with_every_reason():
    problem, operands, _ = product(4, 4, 4, "float32")
    with pytest.raises(ScheduleError, match=r"strip=-1.*stages=9"):
        host.call(problem, HostSchedule(strip=-1, stages=9), *operands)


def test_a_buffer_smaller_than_its_layout_is_refused():
    problem, (a, b), _ = product(8, 8, 8, "float32")
    with pytest.raises(Exception, match=r"lhs has 56 elements, its layout reaches element 63"):
        run(problem, HostSchedule(), a[:7], b)


def test_a_transposed_weight_is_not_rounded():
    problem, (a, b), _ = product(40, 8, 8, "bfloat16", "nt")
    with pytest.raises(Exception, match="must have rows of stride 1"):
        run(problem, HostSchedule(), a, b.astype(np.float32))


def test_a_wide_lhs_is_not_rounded():
    problem, (a, b), _ = product(40, 8, 8, "bfloat16")
    with pytest.raises(Exception, match="operands differ in dtype"):
        run(problem, HostSchedule(), a.astype(np.float32), b)


def test_a_config_of_another_version_is_refused():
    problem, operands, _ = product(4, 4, 4, "float32")
    config = np.array([99, *host.encode(problem, HostSchedule(), 0)[1:]], np.int64)
    out = jax.ShapeDtypeStruct((4, 4), np.float32)
    call = jax.ffi.ffi_call("jaxpipe_host_gemm", out)
    with pytest.raises(Exception, match=r"version is 99, this build takes 3.*lower it again"):
        np.asarray(jax.jit(lambda *xs: call(*xs, config=config))(*operands))


def test_the_thread_cap_must_be_a_positive_number(monkeypatch):
    monkeypatch.setenv("JAXPIPE_HOST_THREADS", "two")
    with pytest.raises(SettingError, match=r"JAXPIPE_HOST_THREADS='two'"):
        host.thread_cap()


@pytest.mark.parametrize(("asked", "cap", "threads"), [(0, 0, 0), (4, 0, 4), (0, 3, 3), (4, 3, 3)])
def test_the_thread_cap_bounds_every_schedule(asked, cap, threads):
    assert host.capped_threads(HostSchedule(threads=asked), cap) == threads


def test_host_info_names_caches_and_instruction_sets():
    info = _native.host_info()
    assert info["isas"][-1] == "portable"
    assert info["l1d_bytes"] <= info["l2_bytes"]
    assert info["logical_cores"] >= 1


@pytest.mark.parametrize("isa", ISAS)
def test_the_peak_rate_is_measured_for_every_isa(isa):
    assert 1e8 < _native.host_peak_flops(0.01, 1, isa) < 1e13


def test_the_peak_rate_of_an_unknown_isa_is_refused():
    with pytest.raises(ValueError, match=r"isa 'mmx' is not usable here: use auto"):
        _native.host_peak_flops(0.01, 1, "mmx")
