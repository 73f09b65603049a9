"""What the tests on several devices share: meshes, placed operands, and comparing with lax."""

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding

import jaxpipe
from tests.tolerance import assert_close

Product = Callable[..., jax.Array]
PLAIN = (((1,), (0,)), ((), ()))
BATCHED = (((2,), (1,)), ((0,), (0,)))
SHAPES = {"x": (8, 16), "w": (16, 12), "xb": (4, 6, 8), "wb": (4, 8, 10), "x7": (7, 16),
          "x17": (8, 17), "w17": (17, 12), "sq": (16, 16)}  # fmt: skip


def array(name: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPES[name]).astype(np.float32)


def mesh_of(kind: AxisType, *kinds: AxisType) -> Mesh:
    return jax.make_mesh((2, 2), ("x", "y"), axis_types=kinds or (kind, kind))


AUTO = AxisType.Auto
EXPLICIT = AxisType.Explicit


def ours(a, b, numbers=PLAIN, **words):
    return jaxpipe.dot_general(a, b, numbers, **words)


def theirs(a, b, numbers=PLAIN, **words):
    return lax.dot_general(a, b, numbers, **words)


def place(mesh: Mesh, names: str, specs) -> list[jax.Array]:
    arrays = [array(name, i) for i, name in enumerate(names.split())]
    return [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, specs, strict=True)]


def collectives(compiled) -> set[str]:
    return set(re.findall(r"(all-gather|all-reduce|reduce-scatter|all-to-all)", compiled.as_text()))


def local_results(compiled) -> list[str]:
    return re.findall(r"= \(?(\S+?)\)? custom-call\(.*jaxpipe_host", compiled.as_text())


def fused_pair(kind: str) -> tuple[Product, Product]:
    """A product with an epilogue of that kind, in one kernel and by jnp."""

    def kernel(a, b):
        words = {"lhs_scale": 0.5, "rhs_scale": 2.0} if kind == "scales" else {}
        words |= {"residual": jnp.dot(a, b)} if kind == "residual" else {}
        bias = jnp.arange(b.shape[-1], dtype=a.dtype) if kind == "bias" else None
        return jaxpipe.dot(a, b, bias=bias, activation="tanh", **words)

    def plain(a, b):
        z = jnp.dot(a, b)
        bias = jnp.arange(b.shape[-1], dtype=a.dtype) if kind == "bias" else 0
        return jnp.tanh(z + bias) + (z if kind == "residual" else 0)

    return kernel, plain


def assert_same(f, *args, pair: tuple[Product, Product] = (ours, theirs)) -> None:
    """Values, types and shardings of a function of a product, through jaxpipe and through lax."""
    got, want = (jax.jit(lambda *a, p=p: f(p, *a))(*args) for p in pair)
    assert_close(got, want, 64, slack=8)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.sharding.is_equivalent_to(w.sharding, g.ndim), (g.sharding, w.sharding)
