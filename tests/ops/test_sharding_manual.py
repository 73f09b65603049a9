"""Several devices, axes in the types: shard_map and explicit meshes, types as lax's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe
from tests.ops.sharded import (
    AUTO,
    BATCHED,
    EXPLICIT,
    SHAPES,
    array,
    assert_same,
    collectives,
    fused_pair,
    local_results,
    mesh_of,
    ours,
    place,
    theirs,
)  # fmt: skip
from tests.tolerance import assert_close


# ------------------------------------------------------------------ shard_map
def mapped(f, in_specs, out_specs, **words):
    return jax.shard_map(f, mesh=mesh_of(AUTO), in_specs=in_specs, out_specs=out_specs, **words)


def loop(d, a, b):
    return lax.scan(lambda c, _: (jnp.tanh(d(c, b)), None), a, None, length=3)[0]


MAPPED = {
    "rows": lambda d, a, b: mapped(d, (P("x"), P()), P("x"))(a, b),
    "rows and columns": lambda d, a, b: mapped(d, (P("x"), P(None, "y")), P("x", "y"))(a, b),
    "contracting": lambda d, a, b: mapped(
        lambda a, b: lax.psum(d(a, b), "x"), (P(None, "x"), P("x")), P()
    )(a, b),
    "scan inside": lambda d, a, b: mapped(
        lambda a, b: loop(d, a, b), (P("x"), P()), P("x")
    )(a, b),
    "grad inside": lambda d, a, b: mapped(
        lambda a, b: jax.grad(lambda b: jnp.sin(d(a, b)).sum())(b), (P("x"), P()), P()
    )(a, b),
    "grad outside": lambda d, a, b: jax.grad(
        lambda a, b: jnp.sin(mapped(d, (P("x"), P(None, "y")), P("x", "y"))(a, b)).sum(), (0, 1)
    )(a, b),
    "grad of scan inside": lambda d, a, b: jax.grad(
        lambda a, b: mapped(lambda a, b: loop(d, a, b), (P("x"), P()), P("x"))(a, b).sum(), (0, 1)
    )(a, b),
    "vmap inside": lambda d, a, b: mapped(
        jax.vmap(d, (0, None)), (P("x"), P()), P("x")
    )(jnp.stack([a, -a]), b),
    "vmap outside": lambda d, a, b: jax.vmap(mapped(d, (P("x"), P()), P("x")), (0, None))(
        jnp.stack([a, -a]), b
    ),
    "checkpoint inside": lambda d, a, b: jax.grad(
        lambda a, b: mapped(
            jax.checkpoint(lambda a, b: jnp.tanh(d(jnp.tanh(d(a, b)), b))), (P("x"), P()), P("x")
        )(a, b).sum(), (0, 1)
    )(a, b),
    "unchecked": lambda d, a, b: mapped(
        lambda a, b: lax.psum(d(a, b), "x"), (P(None, "x"), P("x")), P(), check_vma=False
    )(a, b),
    "partly manual": lambda d, a, b: mapped(
        d, (P("x"), P()), P("x"), axis_names={"x"}
    )(a, b),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPPED)
def test_shard_map(name: str) -> None:
    assert_same(MAPPED[name], array("x"), array("sq", 1))


FUSED = ["rows", "rows and columns", "scan inside", "grad inside", "grad outside",
         "grad of scan inside", "vmap inside", "vmap outside", "checkpoint inside"]  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("kind", ["bias", "residual", "scales"])
def test_shard_map_of_a_fused_product(name: str, kind: str) -> None:
    """Bias, scales and residual vary over as many axes as they like, weights too."""
    assert_same(MAPPED[name], array("x"), array("sq", 1), pair=fused_pair(kind))


def test_inside_shard_map_the_result_varies_as_lax_says() -> None:
    seen = []

    def body(a, b):
        outs = ours(a, b), theirs(a, b)
        seen.extend(str(jax.typeof(out)) for out in outs)
        return outs[0]

    mapped(body, (P("x"), P(None, "y")), P("x", "y"))(array("x"), array("w"))
    assert seen[0] == seen[1]


# ------------------------------------------------------------------ explicit axes
# name: (function of a product, operands, specs)
EXPLICITLY = {
    "rows": (lambda d, a, b: d(a, b), "x w", (P("x"), P())),
    "columns": (lambda d, a, b: d(a, b), "x w", (P(), P(None, "y"))),
    "rows and columns": (lambda d, a, b: d(a, b), "x w", (P("x"), P(None, "y"))),
    "contracting one side": (lambda d, a, b: d(a, b), "x w", (P(), P("x"))),
    "contracting both": (
        lambda d, a, b: d(a, b, out_sharding=P()), "x w", (P(None, "x"), P("x")),
    ),
    "reduce-scatter": (
        lambda d, a, b: d(a, b, out_sharding=P("x", None)), "x w", (P(None, "x"), P("x")),
    ),
    "batch": (lambda d, a, b: d(a, b, BATCHED), "xb wb", (P("x"), P("x", None, "y"))),
    "vmap": (lambda d, a, b: jax.vmap(d)(a, b), "xb wb", (P("x"), P("x"))),
    "vmap with out_sharding": (
        lambda d, a, b: jax.vmap(lambda a, b: d(a, b, out_sharding=P(None, "y")))(a, b),
        "xb wb", (P("x"), P("x")),
    ),
    "scan": (lambda d, a, b: loop(d, a, b), "x sq", (P("x"), P())),
    "gradients": (
        lambda d, a, b: jax.grad(lambda a, b: jnp.sin(d(a, b)).sum(), (0, 1))(a, b),
        "x w", (P("x"), P(None, "y")),
    ),
    "gradients of contracting": (
        lambda d, a, b: jax.grad(
            lambda a, b: jnp.sin(d(a, b, out_sharding=P())).sum(), (0, 1)
        )(a, b),
        "x w", (P(None, "x"), P("x")),
    ),
    "jvp of grad": (
        lambda d, a, b: jax.jvp(jax.grad(lambda a: jnp.sin(d(a, b)).sum()), (a,), (a,)),
        "x w", (P("x"), P()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("eager", [False, True], ids=["jit", "eager"])
@pytest.mark.parametrize("name", EXPLICITLY)
def test_explicit_axes(name: str, eager: bool) -> None:
    f, operands, specs = EXPLICITLY[name]
    mesh = mesh_of(EXPLICIT)
    with jax.set_mesh(mesh):
        args = place(mesh, operands, specs)
        if not eager:
            assert_same(f, *args)
        types = [
            jax.tree.map(jax.typeof, f(d, *args) if eager else jax.eval_shape(
                lambda *a, d=d: f(d, *a), *args)) for d in (ours, theirs)
        ]  # fmt: skip
    assert jax.tree.map(str, types[0]) == jax.tree.map(str, types[1])


@pytest.mark.parametrize("name", ["rows and columns", "batch", "scan", "gradients"])
def test_explicit_axes_outside_set_mesh(name: str) -> None:
    f, operands, specs = EXPLICITLY[name]
    args = place(mesh_of(EXPLICIT), operands, specs)
    assert_same(f, *args)
    if name != "gradients":  # lax's own eager gradients ask for jax.set_mesh
        types = [jax.tree.map(jax.typeof, f(d, *args)) for d in (ours, theirs)]
        assert jax.tree.map(str, types[0]) == jax.tree.map(str, types[1])


@pytest.mark.parametrize("specs", [(P(), P("x")), (P(None, "x"), P()), (P("x", "y"), P())], ids=str)
def test_what_is_added_to_a_product_summed_over_explicit_axes_is_not_summed(specs) -> None:
    args = place(mesh_of(EXPLICIT), "x w", specs)
    for kind in ("bias", "residual"):
        assert_same(lambda d, a, b: d(a, b), *args, pair=fused_pair(kind))


def test_explicit_axes_need_no_callback_and_no_gather() -> None:
    mesh = mesh_of(EXPLICIT)
    with jax.set_mesh(mesh):
        lowered = jax.jit(ours).lower(*place(mesh, "x w", (P("x"), P(None, "y"))))
    assert "CustomSPMDPartitioning" not in lowered.as_text()
    assert collectives(lowered.compile()) == set()
    assert local_results(lowered.compile()) == ["f32[4,6]{1,0}"]


def test_a_fused_product_on_an_explicit_mesh_is_differentiated() -> None:
    mesh = mesh_of(EXPLICIT)
    with jax.set_mesh(mesh):
        a, b = place(mesh, "x w", (P("x"), P(None, "y")))
        bias = jax.device_put(np.arange(12.0, dtype=np.float32), NamedSharding(mesh, P("y")))

        def loss(a, b, bias, fused):
            if fused:
                return jnp.sin(jaxpipe.dot(a, b, bias=bias, activation="gelu")).sum()
            return jnp.sin(jax.nn.gelu(a @ b + bias)).sum()

        grads = [
            jax.jit(jax.grad(lambda *x, f=f: loss(*x, f), (0, 1, 2)))(a, b, bias)
            for f in (True, False)
        ]
    assert_close(*grads, 64, slack=8)


def test_errors_on_explicit_axes_are_those_of_lax() -> None:
    mesh = mesh_of(EXPLICIT)
    with jax.set_mesh(mesh):
        args = place(mesh, "x w", (P(None, "x"), P("x")))
        with pytest.raises(Exception, match="out_sharding") as expected:
            theirs(*args)
        with pytest.raises(expected.type) as got:
            ours(*args)
    assert str(got.value) == str(expected.value)


def test_a_mixed_mesh_is_left_to_lax_with_the_reason() -> None:
    mesh = mesh_of(EXPLICIT, EXPLICIT, AUTO)
    with jax.set_mesh(mesh), jaxpipe.coverage() as ledger:
        assert_same(lambda d, a, b: d(a, b), *place(mesh, "x w", (P("x"), P(None, "y"))))
    assert ledger.taken == 0
    assert "mixed kinds" in next(iter(ledger.left))


def test_an_abstract_mesh_lowers_with_explicit_axes() -> None:
    mesh = AbstractMesh((2, 2), ("x", "y"), axis_types=(EXPLICIT, EXPLICIT))
    specs = [
        jax.ShapeDtypeStruct(SHAPES[n], np.float32, sharding=NamedSharding(mesh, s))
        for n, s in (("x", P("x")), ("w", P()))
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        text = jax.jit(ours).trace(*specs).lower(lowering_platforms=("cpu",)).as_text()
    assert "jaxpipe_host" in text
