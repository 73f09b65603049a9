"""Functions with products inside every construct of JAX, for tests of accelerate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

SIZE = 4


def operands() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return tuple(0.4 * random.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))


@jax.custom_vjp
def scaled_rule(x: Any, w: Any) -> Any:
    """A custom rule that is not the derivative: it must be kept."""
    return jnp.sin(x @ w)


scaled_rule.defvjp(
    lambda x, w: (jnp.sin(x @ w), (x, w, jnp.cos(x @ w))),
    lambda res, g: ((g * res[2]) @ res[1].T * 3, res[0].T @ (g * res[2])),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def with_static(x: Any, w: Any, n: float) -> Any:
    return jnp.sin(x @ w) * n


with_static.defvjp(
    lambda x, w, n: (jnp.sin(x @ w) * n, (x, w)),
    lambda n, res, g: (g @ res[1].T * n, res[0].T @ g),
)


@jax.custom_vjp
def product_in_the_rule(x: Any, w: Any) -> Any:
    """No product in the function, one in its rule."""
    return x * w


product_in_the_rule.defvjp(lambda x, w: (x * w, (x, w)), lambda res, g: (g @ res[1], g * res[0]))


@jax.custom_jvp
def doubled_rule(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


@doubled_rule.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, w = primals
    return doubled_rule(x, w), (tangents[0] @ w) * 2 + x @ tangents[1]


@jax.custom_vjp
def integer_operand(x: Any, i: Any) -> Any:
    return x @ x * i


integer_operand.defvjp(lambda x, i: (x @ x * i, (x, i)), lambda res, g: (g @ res[0], None))


def _loop(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, w: lax.scan(lambda c, _: (f(c, w), None), x, None, length=2)[0]


def _mapped(f: Callable[..., Any], ins: Any, outs: Any) -> Callable[..., Any]:
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs)


def _solve(x: Any, w: Any) -> Any:
    matrix = jnp.eye(SIZE) * 4 + w
    return lax.custom_linear_solve(
        lambda v: matrix @ v,
        x,
        lambda _, b: jnp.linalg.solve(matrix, b),
        transpose_solve=lambda _, b: jnp.linalg.solve(matrix.T, b),
    )


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "a product": lambda x, w: jnp.sin(x @ w),
    "jit": jax.jit(lambda x, w: x @ w),
    "nested jit": jax.jit(lambda x, w: jax.jit(lambda x: x @ w)(x) @ w),
    "jit with shardings": jax.jit(
        lambda x, w: x @ w, out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0])
    ),
    "scan": lambda x, w: lax.scan(
        lambda c, y: (jnp.tanh(c @ w + y), c.sum()), x, jnp.arange(3.0)
    )[0],
    "scan with a constant": _loop(lambda c, w: jnp.tanh(c @ w @ np.ones((SIZE, SIZE), "f"))),
    "fori_loop": lambda x, w: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), x),
    "while_loop": lambda x, w: lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x)
    )[1],
    "cond": lambda x, w: lax.cond(x.sum() > -9, lambda x, w: x @ w, lambda x, w: x, x, w),
    "switch": lambda x, w: lax.switch(1, [lambda x: x, lambda x: x @ w], x),
    "checkpoint": jax.checkpoint(lambda x, w: jnp.sin(jnp.sin(x @ w) @ w)),
    "custom_vjp": scaled_rule,
    "custom_vjp with a static": lambda x, w: with_static(x, w, 2.0),
    "custom_vjp with a product in its rule": product_in_the_rule,
    "custom_vjp of an integer": lambda x, w: integer_operand(x @ w, jnp.int32(2)),
    "custom_vjp in scan": _loop(scaled_rule),
    "custom_vjp in jit": jax.jit(scaled_rule),
    "custom_jvp": doubled_rule,
    "custom_jvp in scan": _loop(doubled_rule),
    "grad inside": lambda x, w: jax.grad(lambda x: jnp.sin(x @ w).sum())(x),
    "vmap inside": lambda x, w: jax.vmap(lambda row: row @ w)(x),
    "a named axis": lambda x, w: jax.vmap(
        lambda row: row @ w - lax.pmean(row @ w, "i"), axis_name="i"
    )(x),
    "custom_linear_solve": _solve,
    "shard_map": _mapped(lambda x, w: jnp.sin(x @ w), (P("d"), P()), P("d")),
    "shard_map with psum": _mapped(
        lambda x, w: lax.psum(x @ w, "d"), (P(None, "d"), P("d")), P()
    ),
    "einsum": lambda x, w: jnp.einsum("ij,kj->ik", x, w),
    "a mixed tree": lambda x, w: {"y": (x @ w, 3), "none": None}["y"][0],
    "fused layers": lambda x, w: jax.nn.softmax(jax.nn.silu(x @ w + w[0]) @ w + x),
}  # fmt: skip

Mode = Callable[[Callable[[Any, Any], Any], Any, Any], Any]


def _loss(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, w: (f(x, w) ** 2).sum()


# How an accelerated function is transformed.
MODES: dict[str, Mode] = {
    "forward": lambda f, x, w: f(x, w),
    "jit": lambda f, x, w: jax.jit(f)(x, w),
    "grad": lambda f, x, w: jax.jit(jax.grad(_loss(f), (0, 1)))(x, w),
    "jvp": lambda f, x, w: jax.jit(lambda x, w: jax.jvp(f, (x, w), (w, x)))(x, w),
    "vmap": lambda f, x, w: jax.jit(jax.vmap(f, (0, None)))(np.stack([x, -x]), w),
    "vmap of grad": lambda f, x, w: jax.jit(jax.vmap(jax.grad(_loss(f)), (0, None)))(
        np.stack([x, -x]), w
    ),
    "hessian": lambda f, x, w: jax.jit(
        lambda x: jax.jvp(jax.grad(lambda x: _loss(f)(x, w)), (x,), (w,))
    )(x),
}
