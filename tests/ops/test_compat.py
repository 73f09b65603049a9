"""Touches every unpromised JAX name that jaxpipe uses: run this first on a new JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxpipe.ops import compat

PLAIN = (((1,), (0,)), ((), ()))
SQUARE = jax.ShapeDtypeStruct((4, 4), np.float32)


def scaled_type(x, *, by):
    return x


def scaled(x, by):
    return scaled_p.bind(x, by=by)


def scaled_jvp(primals, tangents, *, by):
    (x,), (t,) = primals, tangents
    zero = compat.is_zero(t)
    return scaled(x, by), compat.zero_tangent(jax.typeof(x)) if zero else scaled(t, by)


def scaled_batch(axis_data, args, dims, *, by):
    assert compat.axis_spec(axis_data) is None
    return scaled(args[0], by), dims[0]


seen = {}


def scaled_lowering(ctx, x, *, by):
    seen.update(devices=compat.device_count(ctx), exporting=compat.is_exporting(ctx))
    return compat.lower_as(lambda x: x * by, many=False)(ctx, x)


scaled_p = compat.primitive("scaled", scaled_type)
compat.set_jvp(scaled_p, scaled_jvp)
compat.set_transpose(scaled_p, lambda g, x, *, by: [scaled(g, by)])
compat.set_batching(scaled_p, scaled_batch)
compat.set_lowering(scaled_p, scaled_lowering, "cpu")


def test_a_primitive_runs_eagerly_and_compiled() -> None:
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(scaled(x, 2), x * 2)
    np.testing.assert_array_equal(jax.jit(lambda x: scaled(x, 2))(x), x * 2)


def test_a_primitive_is_differentiated_and_batched_by_its_rules() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    grad = jax.grad(lambda x: scaled(x, 3).sum())
    np.testing.assert_array_equal(grad(x), jnp.full((2, 3), 3.0))
    np.testing.assert_array_equal(jax.vmap(grad, 1)(x), jnp.full((3, 2), 3.0))


def test_a_lowering_rule_learns_its_context() -> None:
    jax.jit(lambda x: scaled(x, 5)).lower(jnp.ones(2))
    assert seen == {"devices": 1, "exporting": False}
    jax.export.export(jax.jit(lambda x: scaled(x, 5)))(jnp.ones(2))
    assert seen["exporting"] is True


def test_bilinear_and_per_operand_rules_exist() -> None:
    product = compat.primitive("product", lambda x, y: x)
    compat.set_bilinear(product, lambda g, x, y: g * y, lambda g, x, y: x * g)
    compat.set_jvp_per_operand(product, lambda t, x, y: t * y, lambda t, x, y: x * t)
    compat.set_lowering(product, compat.lower_as(lambda x, y: [x * y], many=True))
    np.testing.assert_array_equal(product.bind(jnp.ones(2), jnp.ones(2)), jnp.ones(2))


def test_the_type_rule_of_dot_general_is_reachable() -> None:
    types = [jax.typeof(jnp.ones((4, 4)))] * 2
    out = compat.abstract_eval(
        compat.dot_general_p, *types, dimension_numbers=PLAIN, precision=None,
        preferred_element_type=None, out_sharding=None,
    )  # fmt: skip
    assert (out.shape, compat.spec_of(out), compat.mesh_of(out).empty) == (
        (4, 4),
        (None, None),
        True,
    )


def test_varying_axes_are_read_and_made_equal() -> None:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))

    def body(x, w):
        assert (compat.varying(x), compat.varying(w)) == ({"d"}, set())
        x, w = compat.same_varying(x, w)
        assert compat.varying(w) == {"d"}
        return x + w

    out = jax.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    assert out(jnp.ones(4), jnp.ones(2)).shape == (4,)


def test_a_convolution_is_traced_to_its_primitive() -> None:
    image, kernel = jnp.ones((1, 4, 4, 1)), jnp.ones((2, 2, 1, 1))
    numbers = ("NHWC", "HWIO", "NHWC")
    conv = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)  # noqa: E731
    (eqn,) = jax.make_jaxpr(conv)(image, kernel).jaxpr.eqns
    assert eqn.primitive is compat.conv_general_dilated_p


def test_an_equation_is_bound_again_in_its_context() -> None:
    closed = jax.make_jaxpr(lambda a, b: jnp.dot(a, b))(SQUARE, SQUARE)
    assert isinstance(closed, compat.JAXPR_TYPES)
    assert list(compat.constants(closed)) == []
    (eqn,) = [e for e in closed.jaxpr.eqns if e.primitive is compat.dot_general_p]
    with compat.equation_context(eqn):
        out = compat.rebind(eqn, [jnp.ones((4, 4)), jnp.eye(4)])
    np.testing.assert_array_equal(out, jnp.ones((4, 4)))


def test_literals_hold_their_value() -> None:
    (eqn,) = jax.make_jaxpr(lambda x: x + 2.0)(1.0).jaxpr.eqns
    assert isinstance(eqn.invars[1], compat.Literal)
    assert eqn.invars[1].val == 2.0


def test_einsum_takes_a_product() -> None:
    calls = []

    def product(*args, **kwargs):
        calls.append(kwargs)
        return lax.dot_general(*args, **kwargs)

    out = compat.einsum_with(product)("ij,kj->ik", jnp.ones((2, 3)), jnp.ones((4, 3)))
    assert out.shape == (2, 4)
    assert calls


@pytest.mark.parametrize("name", compat.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(compat, name) is not None
