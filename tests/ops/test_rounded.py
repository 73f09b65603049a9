"""float32 weights of 16-bit products: the bits of a weight that was rounded before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpipe
from jaxpipe import _native
from jaxpipe.errors import ProblemError
from jaxpipe.ops.rounded_spec import FEW_ROWS, ROUNDED
from jaxpipe.schedule import HostSchedule
from tests.tolerance import assert_close

SHAPES = [(128, 96, 200), (64, 77, 65), (33, 1, 1), (8, 64, 40), (500, 300, 130)]


def random(shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def layer(x, w, **kwargs):
    bias = random(w.shape[1:], x.dtype, 2)
    residual = random((*x.shape[:-1], *w.shape[1:]), x.dtype, 3)
    return jaxpipe.dot(x, w, bias=bias, activation="gelu_erf", residual=residual, **kwargs)


def rounded(f):
    return lambda x, w: f(x, w, dtype=x.dtype)


def copied(f):
    return lambda x, w: f(x, w.astype(x.dtype))


def assert_same_bits(got, want) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(got).view(np.uint8), np.asarray(want).view(np.uint8))


@pytest.mark.parametrize("f", [jaxpipe.dot, layer])
@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_bits_are_of_the_rounded_weight(shape, dtype: str, f) -> None:
    m, k, n = shape
    x, w = random((m, k), dtype), random((k, n), seed=1)
    assert_same_bits(rounded(f)(x, w), copied(f)(x, w))


@pytest.mark.parametrize("isa", _native.host_info()["isas"])
@pytest.mark.parametrize("dtype", ROUNDED)
def test_every_instruction_set_rounds_alike(dtype: str, isa: str) -> None:
    x, w = random((70, 83), dtype), random((83, 101), seed=1)
    schedule = HostSchedule(isa=isa, strip=64, block_k=32, pack="shared")
    with jaxpipe.options(schedule=schedule):
        assert_same_bits(rounded(layer)(x, w), copied(layer)(x, w))


@pytest.mark.parametrize("dtype", ROUNDED)
def test_every_float32_is_rounded_as_xla_does(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 16, np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 65519.99, 65520.0, 1.0 + 2.0**-9], np.float32)
    w = np.concatenate([special, bits.view(np.float32)])
    tiny = np.abs(w) < np.finfo(np.float32).tiny  # XLA flushes them before, the kernels after
    w = jnp.asarray(np.where(np.isnan(w) | tiny, 0.0, w)[None])
    one = jnp.zeros((FEW_ROWS + 1, 1), dtype).at[0].set(1)
    got = rounded(jaxpipe.dot)(one, w)[0]
    want = copied(jaxpipe.dot)(one, w)[0]
    assert_same_bits(got, want)


@pytest.mark.parametrize(("rows", "copies"), [(FEW_ROWS, True), (FEW_ROWS + 1, False)])
def test_no_rounded_copy_is_made_for_many_rows(rows: int, copies: bool) -> None:
    x, w = random((rows, 64), "bfloat16"), random((64, 96))
    text = jax.jit(rounded(jaxpipe.dot)).lower(x, w).as_text()
    assert ("tensor<64x96xbf16>" in text) == copies
    assert "jaxpipe_host_gemm" in text


@pytest.mark.parametrize("implementation", ["host", "xla", "interpret"])
def test_every_executor_takes_a_float32_weight(implementation) -> None:
    x, w = random((40, 64), "bfloat16"), random((64, 48), seed=1)
    target = "a100" if implementation == "interpret" else None
    with jaxpipe.options(implementation=implementation, target=target):
        assert_same_bits(rounded(jaxpipe.dot)(x, w), copied(jaxpipe.dot)(x, w))


@pytest.mark.parametrize("f", [jaxpipe.dot, layer])
def test_gradients_have_each_operands_type(f) -> None:
    x, w = random((40, 24), "bfloat16"), random((24, 33), seed=1)

    def loss(f):
        return lambda x, w: jnp.sin(f(x, w).astype(jnp.float32)).sum()

    got = jax.grad(loss(rounded(f)), (0, 1))(x, w)
    want = jax.grad(loss(copied(f)), (0, 1))(x, w)
    jax.tree.map(assert_same_bits, got, want)
    assert [g.dtype for g in got] == [jnp.bfloat16, jnp.float32]


@pytest.mark.parametrize("operand", [0, 1])
def test_the_linear_transpose_rounds(operand: int) -> None:
    operands = [random((40, 24), "bfloat16"), random((24, 33), seed=1)]

    def product(value):
        x, w = [*operands[:operand], value, *operands[operand + 1 :]]
        return jaxpipe.dot(x, w, dtype="bfloat16")

    out = random((40, 33), "bfloat16", 4)
    transposed = jax.linear_transpose(product, operands[operand])
    with jaxpipe.coverage() as coverage:
        got = jax.jit(transposed)(out)
    assert coverage.taken == 1
    jax.tree.map(assert_same_bits, got, jax.vjp(product, operands[operand])[1](out))


@pytest.mark.parametrize("axes", [(0, None), (1, None), (None, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("f", [jaxpipe.dot, layer])
def test_vmap(axes, f) -> None:
    x, w = random((40, 40, 24), "bfloat16"), random((40, 24, 33), seed=1)
    w = w if axes[1] == 0 else w[0]
    x = x if axes[0] is not None else x[0]
    got, want = jax.vmap(rounded(f), axes)(x, w), jax.vmap(copied(f), axes)(x, w)
    assert_close(got, want, 24, slack=2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_rows_and_columns_are_split_over_devices(kind: AxisType) -> None:
    mesh = jax.make_mesh((2, 2), ("rows", "columns"), axis_types=(kind, kind))
    x, w = random((80, 24), "bfloat16"), random((24, 64), seed=1)
    with jax.set_mesh(mesh):
        rows = jax.device_put(x, NamedSharding(mesh, PartitionSpec("rows", None)))
        columns = jax.device_put(w, NamedSharding(mesh, PartitionSpec(None, "columns")))
        got = jax.jit(rounded(jaxpipe.dot))(rows, columns)
    assert tuple(got.sharding.spec) == ("rows", "columns")
    assert_same_bits(np.asarray(got), copied(jaxpipe.dot)(x, w))


def test_accelerate_takes_the_weight_that_a_layer_rounds() -> None:
    x, w = random((40, 64), "bfloat16"), random((64, 96), seed=1)

    def dense(x, w):
        return jax.nn.relu(x @ w.astype(x.dtype))

    text = jax.jit(jaxpipe.accelerate(dense)).lower(x, w).as_text()
    assert "tensor<64x96xbf16>" not in text
    assert_same_bits(jaxpipe.accelerate(dense)(x, w), rounded(jaxpipe.dot)(x, w).clip(0))


def test_accelerate_leaves_a_rounded_weight_that_others_use() -> None:
    x, w = random((40, 64), "bfloat16"), random((64, 64), seed=1)

    def twice(x, w):
        narrow = w.astype(x.dtype)
        return (x @ narrow) @ narrow

    text = jax.jit(jaxpipe.accelerate(twice)).lower(x, w).as_text()
    assert text.count("tensor<64x64xf32>) -> tensor<64x64xbf16>") == 1


def test_dtype_converts_both_operands_as_a_flax_layer_does() -> None:
    x, w = random((40, 64)), random((64, 48), "float16", 1)
    got = jaxpipe.dot(x, w, dtype="bfloat16")
    assert_same_bits(got, jaxpipe.dot(x.astype("bfloat16"), w.astype("bfloat16")))


def test_a_weight_that_was_packed_takes_dtype_too() -> None:
    x, w = random((40, 64)), random((64, 48), "bfloat16", 1)
    got = jaxpipe.dot(x, jaxpipe.prepack(w), dtype="bfloat16")
    assert_same_bits(got, jaxpipe.dot(x.astype("bfloat16"), w))


def test_a_constant_weight_is_not_packed_in_the_wrong_type() -> None:
    x, w = random((40, 64), "bfloat16"), random((64, 48), seed=1)
    with jaxpipe.options(pack_constants=True):
        got = jax.jit(lambda x: jaxpipe.dot(x, w, dtype="bfloat16"))(x)
    assert_same_bits(got, rounded(jaxpipe.dot)(x, w))


def test_dtype_with_scales_is_refused() -> None:
    x, w = random((40, 64)).astype(jnp.int8), random((64, 48)).astype(jnp.int8)
    with pytest.raises(ProblemError, match="with scales"):
        jaxpipe.dot(x, w, rhs_scale=2.0, dtype="bfloat16")
