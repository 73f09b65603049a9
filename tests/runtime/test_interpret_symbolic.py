"""Exported programs with symbolic sizes, run by the interpreter: GPU kernels without a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxpipe

B, S = export.symbolic_shape("b, s")
(FEWER,) = export.symbolic_shape("b - 1")
TARGETS = ("a100", "h200")


def layer(x, w, bias):
    return jaxpipe.dot(x, w, bias=bias, activation="gelu")


def products(x, y):
    return jaxpipe.einsum("bmk,bkn->bmn", x, y)


def conv(x, w):
    return jaxpipe.conv(x, w, activation="relu")


# name: function, symbolic shapes, shapes of several calls
CASES = {
    "rows": (layer, [(B, 64), (64, 48), (48,)], [{"b": 1}, {"b": 16}, {"b": 17}, {"b": 70}]),
    "rows from two": (layer, [(B, S, 64), (64, 48), (48,)], [{"b": 2, "s": 7}]),
    "batch": (products, [(B, 33, 64), (B, 64, 48)], [{"b": 1}, {"b": 3}]),
    "batch and rows": (products, [(B, S, 64), (B, 64, 48)], [{"b": 2, "s": 33}]),
    "images": (conv, [(B, 9, 9, 8), (3, 3, 8, 16)], [{"b": 1}, {"b": 3}]),
    "no rows": (layer, [(FEWER, 64), (64, 48), (48,)], [{"b - 1": 0}]),
}


def exported(function, shapes, target: str) -> export.Exported:
    specs = [jax.ShapeDtypeStruct(dims, jnp.bfloat16) for dims in shapes]
    with jaxpipe.options(implementation="interpret", target=target):
        checks = jaxpipe.EXPORT_CHECKS
        return export.export(jax.jit(function), disabled_checks=checks)(*specs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_program_is_right_and_without_hazard_at_every_size(name: str, target: str) -> None:
    function, shapes, calls = CASES[name]
    program = exported(function, shapes, target)
    assert program.mlir_module().count("@jaxpipe_interpret_launch") == 1
    loaded = export.deserialize(bytearray(program.serialize()))
    rng = np.random.default_rng(0)
    for values in calls:
        sizes = [[values.get(str(d), d) for d in dims] for dims in shapes]
        operands = [jnp.asarray(rng.standard_normal(dims), jnp.bfloat16) for dims in sizes]
        got, want = (np.asarray(f(*operands), np.float32) for f in (loaded.call, function))
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0.02, atol=0.05)
