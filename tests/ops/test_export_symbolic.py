"""Exported programs with symbolic dimensions carry the host's kernels, with a static one's bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxpipe
from jaxpipe.problem import Matmul
from jaxpipe.runtime import host
from jaxpipe.schedule import HostSchedule

B, S, N, K = export.symbolic_shape("b, s, n, k")
RNG = np.random.default_rng(0)


def layer(x, w, bias):
    return jaxpipe.dot(x, w, bias=bias, activation="gelu")


def product(text):
    return lambda x, y: jaxpipe.einsum(text, x, y)


def halves(x, y):
    return jaxpipe.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))


def squared(function):
    """Gradients of a loss: the same products with rows contracted."""
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), (0, 1))


def conv(**words):
    return lambda x, w: jaxpipe.conv(x, w, activation="relu", **words)


def packed(x, w):
    return jaxpipe.dot(x, jaxpipe.prepack(w))


# name: function, symbolic shapes of its operands, shapes of several calls
CASES = {
    "rows": (layer, [(B, 64), (64, 48), (48,)], [{"b": 1}, {"b": 5}, {"b": 300}]),
    "rows in whole tiles": (layer, [(B, 16, 64), (64, 48), (48,)], [{"b": 1}, {"b": 3}]),
    "rows from two": (layer, [(B, S, 64), (64, 48), (48,)], [{"b": 2, "s": 7}]),
    "16 bits": (halves, [(B, 64), (64, 48)], [{"b": 1}, {"b": 33}]),
    "batch": (product("bmk,bkn->bmn"), [(B, 33, 64), (B, 64, 48)], [{"b": 1}, {"b": 3}]),
    "batch and rows": (
        product("bmk,bkn->bmn"), [(B, S, 64), (B, 64, 48)], [{"b": 1, "s": 1}, {"b": 3, "s": 9}],
    ),
    "two batches": (
        product("xbmk,xbkn->xbmn"), [(2, B, 9, 64), (2, B, 64, 48)], [{"b": 1}, {"b": 3}],
    ),
    "transposed rows": (product("km,kn->mn"), [(64, B), (64, 48)], [{"b": 1}, {"b": 50}]),
    "columns": (product("mk,kn->mn"), [(9, 64), (64, N)], [{"n": 1}, {"n": 50}]),
    "transposed columns": (product("mk,nk->mn"), [(9, 64), (N, 64)], [{"n": 1}, {"n": 50}]),
    "terms": (product("mk,kn->mn"), [(9, K), (K, 48)], [{"k": 1}, {"k": 50}]),
    "terms of a gradient": (product("km,kn->mn"), [(K, 9), (K, 48)], [{"k": 1}, {"k": 50}]),
    "terms of every batch": (product("bmk,kn->bmn"), [(B, 9, K), (K, 8)], [{"b": 2, "k": 50}]),
    "terms outermost": (product("kbm,bkn->bmn"), [(K, 3, 9), (3, K, 8)], [{"k": 50}]),
    "scores": (product("bqhd,bkhd->bhqk"), [(B, S, 4, 64)] * 2, [{"b": 2, "s": 33}]),
    "values": (
        product("bhqk,bkhd->bqhd"), [(B, 4, S, S), (B, S, 4, 64)], [{"b": 2, "s": 33}],
    ),
    "images": (conv(), [(B, 9, 9, 8), (3, 3, 8, 16)], [{"b": 1}, {"b": 4}]),
    "images of one pixel filters": (
        conv(strides=2), [(B, 9, 9, 8), (1, 1, 8, 16)], [{"b": 1}, {"b": 4}],
    ),
    "gradients": (squared(layer), [(B, 64), (64, 48), (48,)], [{"b": 1}, {"b": 40}]),
    "gradients of images": (
        squared(conv()), [(B, 9, 9, 8), (3, 3, 8, 16)], [{"b": 1}, {"b": 4}],
    ),
    "gradients of strided images": (
        squared(conv(strides=2)), [(B, 9, 9, 8), (1, 1, 8, 16)], [{"b": 3}],
    ),
    "packed": (packed, [(B, 64), (64, 48)], [{"b": 1}, {"b": 40}]),
}  # fmt: skip


def shaped(dims):
    return jax.ShapeDtypeStruct(dims, np.float32)


def exported(function, shapes) -> export.Exported:
    checks = jaxpipe.EXPORT_CHECKS
    return export.export(jax.jit(function), disabled_checks=checks)(*map(shaped, shapes))


def drawn(shapes, values):
    """Operands of the symbolic shapes where the dimensions have these values."""
    sizes = [[values.get(str(d), d) for d in dims] for dims in shapes]
    return [RNG.standard_normal(dims).astype(np.float32) for dims in sizes]


@pytest.mark.parametrize("name", CASES)
def test_every_call_of_one_program_has_the_bits_of_a_static_one(name) -> None:
    function, shapes, calls = CASES[name]
    with jaxpipe.coverage() as ledger:
        program = exported(function, shapes)
    assert ledger.taken == ledger.total > 0, ledger.left
    loaded = export.deserialize(bytearray(program.serialize()))
    for values in calls:
        operands = drawn(shapes, values)
        got, want = (jax.tree.leaves(f(*operands)) for f in (loaded.call, jax.jit(function)))
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_ledger_says_which_sizes_are_left_to_the_call() -> None:
    with jaxpipe.coverage() as ledger:
        exported(lambda *args: layer(*args), [(B, 64), (64, 48), (48,)])
    (site,) = (site for site, _ in ledger.rows())
    assert site.implementation == "host"
    assert site.problem.endswith("bias+gelu_tanh dynamic:m")


def test_derivatives_are_exported_with_a_symbolic_program() -> None:
    program = exported(layer, [(B, 64), (64, 48), (48,)])
    loaded = export.deserialize(bytearray(program.serialize(vjp_order=1)))
    operands = drawn([(40, 64), (64, 48), (48,)], {})
    got, want = (
        jax.grad(lambda *args, f=f: (f(*args) ** 2).sum(), (0, 1, 2))(*map(jnp.asarray, operands))
        for f in (loaded.call, layer)
    )
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_program_of_a_derivative_carries_kernels() -> None:
    program = exported(layer, [(B, 64), (64, 48), (48,)])
    with jaxpipe.coverage() as ledger:
        program.serialize(vjp_order=1)
    assert ledger.taken == ledger.total >= 2, ledger.left


def test_a_mapped_symbolic_batch_is_one_product() -> None:
    mapped = jax.vmap(lambda x, w: jaxpipe.dot(x, w), (0, None))
    shapes = [(B, S, 16), (16, 5)]
    program = exported(mapped, shapes)
    assert program.mlir_module().count("@jaxpipe_host_gemm") == 1
    x, w = drawn(shapes, {"b": 2, "s": 3})
    np.testing.assert_array_equal(program.call(x, w), jax.jit(mapped)(x, w))


def test_symbolic_pixels_are_xlas_and_counted() -> None:
    with jaxpipe.coverage() as ledger:
        program = exported(conv(), [(2, S, 9, 8), (3, 3, 8, 16)])
    assert (ledger.taken, ledger.total) == (0, 1)
    assert "symbolic image or filter" in next(iter(ledger.left))
    x, w = drawn([(2, 9, 9, 8), (3, 3, 8, 16)], {})
    np.testing.assert_allclose(program.call(x, w), conv()(x, w), atol=1e-4)


def test_a_call_with_no_rows_gives_none() -> None:
    (rows,) = export.symbolic_shape("b - 1")
    program = exported(layer, [(rows, 64), (64, 48), (48,)])
    empty = np.zeros((0, 64), np.float32)
    assert program.call(empty, *drawn([(64, 48), (48,)], {})).shape == (0, 48)


def test_sizes_that_do_not_fit_the_buffers_are_refused() -> None:
    """The rows are the result's: a lhs that has fewer is not read."""
    config = host.encode(Matmul(512, 8, 16, dtype="float32", dynamic=("m",)), HostSchedule(), 0)
    call = jax.ffi.ffi_call("jaxpipe_host_gemm", shaped((4, 8)))
    x, w = drawn([(3, 16), (16, 8)], {})
    with pytest.raises(Exception, match="lhs has 48 elements, its layout reaches element 63"):
        jax.block_until_ready(call(x, w, config=np.array(config, np.int64)))
