"""jaxpipe.prepack: the same bits as unpacked weights, through every transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxpipe
from jaxpipe import _native
from jaxpipe.errors import ProblemError, UnsupportedError
from jaxpipe.ops import packing
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HOST_ISAS
from tests.tolerance import assert_close

DTYPES = sorted(packing.words()[1])
SHAPES = [(1, 64, 33), (4, 129, 32), (16, 96, 200), (131, 77, 65), (3, 1, 1), (512, 384, 384)]


def random(shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def layer(x, w, **kwargs):
    n = w.shape[1]
    bias, residual = random((n,), x.dtype, 2), random((*x.shape[:-1], n), x.dtype, 3)
    return jaxpipe.dot(x, w, bias=bias, activation="gelu_erf", residual=residual, **kwargs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_weights_give_the_same_bits(shape, dtype: str) -> None:
    m, k, n = shape
    x, w = random((m, k), dtype), random((k, n), dtype, 1)
    for f in (jaxpipe.dot, layer):
        got, want = f(x, jaxpipe.prepack(w)), f(x, w, implementation="host")
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("isa", _native.host_info()["isas"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_every_instruction_set_reads_its_own_packing(shape, dtype, isa: str, monkeypatch) -> None:
    m, k, n = shape
    x, w = random((m, k), dtype), random((k, n), dtype, seed=1)
    row = HOST_ISAS[isa]
    terms = 2 if dtype == "bfloat16" and row.has_bf16 else 1
    monkeypatch.setattr(packing, "words", lambda: (row.panel_cols, {dtype: terms}))
    with jaxpipe.options(schedule=HostSchedule(isa=isa)):
        np.testing.assert_array_equal(layer(x, jaxpipe.prepack(w)), layer(x, w))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pack", ["item", "shared"])
def test_packed_weights_are_read_block_by_block(pack, dtype: str) -> None:
    x, w = random((70, 200), dtype), random((200, 96), dtype, 1)
    with jaxpipe.options(schedule=HostSchedule(block_k=48, strip=64, pack=pack)):
        np.testing.assert_array_equal(layer(x, jaxpipe.prepack(w)), layer(x, w))


@pytest.mark.parametrize("dtype", DTYPES)
def test_unpacking_gives_the_weight_back(dtype: str) -> None:
    w = random((37, 41), dtype)
    np.testing.assert_array_equal(jaxpipe.prepack(w).unpack(), w)


def test_packed_weights_are_read_without_unpacking() -> None:
    x, w = random((4, 5, 64)), jaxpipe.prepack(random((64, 96)))
    lowered = jax.jit(jaxpipe.dot).lower(x, w)
    assert "transpose" not in lowered.as_text()
    assert "jaxpipe_host_gemm" in lowered.as_text()


def test_the_ledger_counts_a_packed_product() -> None:
    with jaxpipe.coverage() as coverage:
        jax.jit(layer).lower(random((4, 64)), jaxpipe.prepack(random((64, 96))))
    assert coverage.taken == 1


@pytest.mark.parametrize("implementation", ["host", "xla"])
def test_every_executor_takes_packed_weights(implementation) -> None:
    x, w = random((9, 70)), random((70, 50), seed=1)
    got = layer(x, jaxpipe.prepack(w), implementation=implementation)
    assert_close(got, layer(x, w, implementation=implementation), 70)


@pytest.mark.parametrize("f", [jaxpipe.dot, layer])
def test_gradients_unpack(f) -> None:
    x, w = random((6, 40)), random((40, 33), seed=1)

    def loss(x, w):
        return jnp.sin(f(x, w)).sum()

    gx, gw = jax.grad(loss, (0, 1))(x, jaxpipe.prepack(w))
    want_x, want_w = jax.grad(loss, (0, 1))(x, w)
    assert_close(gx, want_x, 40, slack=10)
    assert_close(gw.unpack(), want_w, 40, slack=10)


@pytest.mark.parametrize("operand", [0, 1])
def test_the_linear_transpose_unpacks(operand: int) -> None:
    operands = [random((6, 40)), jaxpipe.prepack(random((40, 33), seed=1))]

    def product(value):
        return jaxpipe.dot(*[*operands[:operand], value, *operands[operand + 1 :]])

    out = random((6, 33), seed=4)
    got = jax.linear_transpose(product, operands[operand])(out)
    want = jax.vjp(product, operands[operand])[1](out)
    assert_close(*(jax.tree.leaves(x)[0] for x in (got, want)), 33, slack=10)


@pytest.mark.parametrize("axes", [(0, None), (1, None), (None, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("f", [jaxpipe.dot, layer])
def test_vmap(axes, f) -> None:
    x, w = random((3, 3, 40)), random((3, 40, 33), seed=1)
    packed = jax.vmap(jaxpipe.prepack)(w) if axes[1] == 0 else jaxpipe.prepack(w[0])
    got = jax.vmap(f, axes)(x, packed)
    want = jax.vmap(f, axes)(x, w if axes[1] == 0 else w[0])
    assert_close(got, want, 40, slack=2)


def test_vmap_of_rows_stays_one_packed_product() -> None:
    packed = jaxpipe.prepack(random((40, 33)))
    with jaxpipe.coverage() as coverage:
        jax.jit(jax.vmap(lambda x: jaxpipe.dot(x, packed))).lower(random((3, 5, 40)))
    ((site, count),) = coverage.rows()
    assert (count, site.schedule.endswith("on packed weights")) == (1, True)


def test_scan_over_packed_layers() -> None:
    x, w = random((5, 40)), random((3, 40, 40), seed=1)

    def through(weights):
        return jax.lax.scan(lambda y, w: (jaxpipe.dot(y, w, activation="tanh"), None), x, weights)[
            0
        ]

    np.testing.assert_array_equal(through(jax.vmap(jaxpipe.prepack)(w)), through(w))


def test_an_exported_program_carries_packed_weights() -> None:
    packed, x = jaxpipe.prepack(random((40, 33))), random((5, 40))
    exported = jax.export.export(
        jax.jit(lambda x: jaxpipe.dot(x, packed)), disabled_checks=jaxpipe.EXPORT_CHECKS
    )(x)
    got = jax.export.deserialize(exported.serialize()).call(x)
    np.testing.assert_array_equal(got, jaxpipe.dot(x, packed))


def test_an_exported_program_takes_packed_weights() -> None:
    packed, x = jaxpipe.prepack(random((40, 33))), random((5, 40))
    exported = jax.export.export(jax.jit(jaxpipe.dot), disabled_checks=jaxpipe.EXPORT_CHECKS)
    got = jax.export.deserialize(exported(x, packed).serialize()).call(x, packed)
    np.testing.assert_array_equal(got, jaxpipe.dot(x, packed))


def test_another_cpus_packing_is_unpacked_when_traced() -> None:
    x, w = random((5, 40)), random((40, 33), seed=1)
    foreign = jaxpipe.Packed(packing._pack(w, 48, 1), w.shape)
    assert_close(jaxpipe.dot(x, foreign), jaxpipe.dot(x, w), 40)


def test_another_kernels_packing_is_refused_when_run() -> None:
    x, packed = random((5, 40)), jaxpipe.prepack(random((40, 33)))
    other = HostSchedule(isa="portable")
    with jaxpipe.options(schedule=other), pytest.raises(Exception, match=r"call jaxpipe\.prepack"):
        jaxpipe.dot(x, packed).block_until_ready()


@pytest.mark.skipif("avx512_bf16" not in _native.host_info()["isas"], reason="no AVX512-BF16")
def test_words_of_other_terms_are_refused_when_run() -> None:
    """The panels are as wide and as large, but hold one row a word where two are read."""
    x, w = random((5, 40), "bfloat16"), random((40, 33), "bfloat16")
    isa = {1: "avx512_bf16", 2: "avx512"}[packing.words()[1]["bfloat16"]]
    other = jaxpipe.options(schedule=HostSchedule(isa=isa))
    with other, pytest.raises(Exception, match=r"call jaxpipe\.prepack"):
        jaxpipe.dot(x, jaxpipe.prepack(w)).block_until_ready()


def test_what_has_no_packed_form_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="prepack of int8"):
        jaxpipe.prepack(jnp.zeros((4, 4), jnp.int8))
    with pytest.raises(ProblemError, match="one matrix"):
        jaxpipe.prepack(jnp.zeros((4, 4, 4)))


def test_operands_are_not_narrowed() -> None:
    with pytest.raises(ProblemError, match="convert x"):
        jaxpipe.dot(random((4, 8)), jaxpipe.prepack(random((8, 4), "bfloat16")))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_rows_are_split_over_devices(kind: AxisType) -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("rows",), axis_types=(kind,))
    x, w = random((8, 40)), random((40, 33), seed=1)
    with jax.set_mesh(mesh):
        rows = jax.device_put(x, NamedSharding(mesh, PartitionSpec("rows")))
        got = jax.jit(jaxpipe.dot)(rows, jaxpipe.prepack(w))
    assert got.sharding.spec[0] == "rows"
    assert_close(np.asarray(got), jaxpipe.dot(x, w), 40)
