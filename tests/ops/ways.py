"""Every transformation that a product must pass through, as one table.

A way takes a product `f(x, w) -> y` of square matrices and three of them, and gives a tree of
arrays; the same way through lax is the expectation. Rows of the table in docs/transformations.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Product = Callable[[Any, Any], Any]
Way = Callable[[Product, Any, Any, Any], Any]
SIZE = 16


def operands(dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    """Three square matrices of size about 1 / sqrt(SIZE), so that products keep it."""
    random = np.random.default_rng(0)
    return tuple(
        jnp.asarray(random.standard_normal((SIZE, SIZE)) / SIZE**0.5, dtype) for _ in range(3)
    )


def _loss(f: Product) -> Callable[[Any, Any], Any]:
    return lambda x, w: jnp.sin(f(x, w)).sum()


def _twice(f: Product) -> Callable[[Any, Any], Any]:
    return lambda x, w: f(jnp.sin(f(x, w)), w)


def _no_jit(f: Product, x: Any, w: Any, v: Any) -> Any:
    with jax.disable_jit():
        return f(x, w)


def _third_order(f: Product, x: Any, w: Any, v: Any) -> Any:
    first = jax.grad(_loss(f))
    second = jax.grad(lambda x: (first(x, w) ** 2).sum())
    return jax.grad(lambda x: (second(x) ** 2).sum())(x)


def _vmap(in_axes: Any, out_axes: int = 0) -> Way:
    def way(f: Product, x: Any, w: Any, v: Any) -> Any:
        stack = lambda a, axis: a if axis is None else jnp.stack([a, v, a * 2], axis)  # noqa: E731
        args = (stack(x, in_axes[0]), stack(w, in_axes[1]))
        return jax.vmap(f, in_axes, out_axes)(*args)

    return way


def _vmap_nested(f: Product, x: Any, w: Any, v: Any) -> Any:
    xs, ws = jnp.stack([x, v]), jnp.stack([w, v, w * 2])
    inner = jax.vmap(f, (None, 1), 1)
    return jax.vmap(inner, (0, None))(xs, jnp.moveaxis(ws, 0, 1))


def _vmap_grad(f: Product, x: Any, w: Any, v: Any) -> Any:
    return jax.vmap(jax.grad(_loss(f), (0, 1)), (0, None))(jnp.stack([x, v]), w)


def _grad_vmap(f: Product, x: Any, w: Any, v: Any) -> Any:
    def total(xs: Any, w: Any) -> Any:
        return jax.vmap(_loss(f), (0, None))(xs, w).sum()

    return jax.grad(total, (0, 1))(jnp.stack([x, v]), w)


def _checkpoint(f: Product, x: Any, w: Any, v: Any) -> Any:
    return jax.grad(jax.checkpoint(_loss(_twice(f))), (0, 1))(x, w)


def _scan_grad(f: Product, x: Any, w: Any, v: Any) -> Any:
    def total(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.tanh(f(c, w)), None), x, None, length=3)[0].sum()

    return jax.grad(total, (0, 1))(x, w)


def _scan_over_weights(f: Product, x: Any, w: Any, v: Any) -> Any:
    def total(ws: Any) -> Any:
        return lax.scan(lambda c, u: (jnp.tanh(f(c, u)), c.sum()), x, ws)[0].sum()

    return jax.grad(total)(jnp.stack([w, v]))


def _while(f: Product, x: Any, w: Any, v: Any) -> Any:
    step = lambda c: (c[0] + 1, jnp.tanh(f(c[1], w)))  # noqa: E731
    return lax.while_loop(lambda c: c[0] < 3, step, (0, x))[1]


def _fori_jvp(f: Product, x: Any, w: Any, v: Any) -> Any:
    loop = lambda w: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(f(c, w)), x)  # noqa: E731
    return jax.jvp(loop, (w,), (v,))


def _cond_grad(f: Product, x: Any, w: Any, v: Any) -> Any:
    either = lambda w: lax.cond(w[0, 0] > -9, lambda w: f(x, w).sum(), jnp.sum, w)  # noqa: E731
    return jax.grad(either)(w)


def _custom_vjp(f: Product, x: Any, w: Any, v: Any) -> Any:
    @jax.custom_vjp
    def product(x: Any, w: Any) -> Any:
        return f(x, w)

    product.defvjp(lambda x, w: (f(x, w), (x, w)), lambda res, g: (f(g, res[1].T), f(res[0].T, g)))
    return jax.grad(_loss(product), (0, 1))(x, w)


def _donation(f: Product, x: Any, w: Any, v: Any) -> Any:
    return jax.jit(lambda x, w: f(x, w) + x, donate_argnums=0)(jnp.array(x), w)


def _vjp(f: Product, x: Any, w: Any, v: Any) -> Any:
    y, pull = jax.vjp(f, x, w)
    return y, pull(v.astype(y.dtype))


WAYS: dict[str, Way] = {
    "eager": lambda f, x, w, v: f(x, w),
    "jit": lambda f, x, w, v: jax.jit(f)(x, w),
    "disable_jit": _no_jit,
    "grad": lambda f, x, w, v: jax.grad(_loss(f), (0, 1))(x, w),
    "jit of grad": lambda f, x, w, v: jax.jit(jax.grad(_loss(f), (0, 1)))(x, w),
    "value_and_grad": lambda f, x, w, v: jax.value_and_grad(_loss(f))(x, w),
    "vjp": _vjp,
    "jvp": lambda f, x, w, v: jax.jvp(f, (x, w), (v, x)),
    "jvp of one operand": lambda f, x, w, v: jax.jvp(lambda w: f(x, w), (w,), (v,)),
    "linearize": lambda f, x, w, v: jax.linearize(f, x, w)[1](v, x),
    "hessian-vector product": lambda f, x, w, v: jax.jvp(jax.grad(_loss(f), 1), (x, w), (v, x)),
    "forward over reverse": lambda f, x, w, v: jax.hessian(lambda a: _loss(f)(a * x, w))(0.5),
    "reverse over reverse": lambda f, x, w, v: jax.grad(
        lambda w: (jax.grad(_loss(f), 1)(x, w) ** 2).sum()
    )(w),
    "third order": _third_order,
    "vmap of lhs": _vmap((0, None)),
    "vmap of rhs": _vmap((None, 0)),
    "vmap of both": _vmap((0, 0)),
    "vmap of other axes": _vmap((1, 2), 1),
    "vmap of the last axis": _vmap((2, 0), -1),
    "nested vmap": _vmap_nested,
    "vmap of grad": _vmap_grad,
    "grad of vmap": _grad_vmap,
    "checkpoint": _checkpoint,
    "scan": _scan_grad,
    "scan over weights": _scan_over_weights,
    "while_loop": _while,
    "fori_loop under jvp": _fori_jvp,
    "cond": _cond_grad,
    "custom_vjp": _custom_vjp,
    "donated operand": _donation,
}


def through(way: str, product: Product, dtype: Any = np.float32) -> Any:
    """The outcome of one way for one product."""
    return WAYS[way](product, *operands(dtype))


@functools.cache
def lax_outcome(way: str, dtype: str = "float32") -> Any:
    """The same way through lax.dot_general."""
    return through(way, lambda x, w: lax.dot_general(x, w, (((1,), (0,)), ((), ()))), dtype)
