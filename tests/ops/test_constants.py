"""options(pack_constants=True): weights that a traced function closes over are packed once."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpipe
from jaxpipe.ops import constants


def weight(seed: int, n: int = 64) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal((48, n)), jnp.float32)


X = jnp.ones((4, 48))


@pytest.fixture
def cache(monkeypatch) -> constants.Cache:
    fresh = constants.Cache()
    monkeypatch.setattr(constants, "CACHE", fresh)
    return fresh


def schedules(f, *args) -> list[str]:
    with jaxpipe.coverage() as coverage:
        jax.jit(f).lower(*args)
    return [site.schedule for site, _ in coverage.rows()]


def test_a_closed_over_weight_is_packed_once(cache) -> None:
    w = weight(0)
    with jaxpipe.options(pack_constants=True):
        used = [
            schedules(f, X) for f in (lambda x: jaxpipe.dot(x, w), lambda x: -jaxpipe.dot(x, w))
        ]
        got = jax.jit(lambda x: jaxpipe.dot(x, w))(X)
    assert all(s.endswith("on packed weights") for (s,) in used)
    assert cache.bytes == w.nbytes
    np.testing.assert_array_equal(got, jaxpipe.dot(X, w, implementation="host"))


def test_without_the_option_nothing_is_packed(cache) -> None:
    w = weight(0)
    schedules(lambda x: jaxpipe.dot(x, w), X)
    assert cache.bytes == 0


def test_arguments_are_not_packed(cache) -> None:
    with jaxpipe.options(pack_constants=True):
        schedules(jaxpipe.dot, X, weight(0))
        jaxpipe.dot(X, weight(0))
    assert cache.bytes == 0


def test_an_entry_goes_with_its_array(cache) -> None:
    w = weight(0)
    with jaxpipe.options(pack_constants=True):
        cache.packed(w, 1 << 20)
    del w
    gc.collect()
    assert cache.bytes == 0


def test_the_bound_holds_and_the_oldest_goes_first(cache) -> None:
    first, second, third = (weight(i) for i in range(3))
    limit = 2 * first.nbytes
    for w in (first, second, first, third):
        cache.packed(w, limit)
    assert cache.bytes == limit
    assert {id(first), id(third)} == set(cache._entries)


def test_a_weight_above_the_bound_stays_as_it_is(cache) -> None:
    w = weight(0)
    assert cache.packed(w, w.nbytes - 1) is w


def test_gradients_pass_a_packed_constant() -> None:
    w = weight(3)
    with jaxpipe.options(pack_constants=True):
        got = jax.grad(lambda x: jnp.sin(jaxpipe.dot(x, w)).sum())(X)
    want = jax.grad(lambda x: jnp.sin(jnp.dot(x, w)).sum())(X)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
