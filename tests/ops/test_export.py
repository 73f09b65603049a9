"""Exported programs: they carry our kernels, load in a fresh process, and differentiate."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe
from tests.tolerance import assert_close

A = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((16, 5)).astype(np.float32)
WANT = jnp.sin(jnp.asarray(A @ B))


@jax.jit
def program(a, b):
    return jnp.sin(jaxpipe.dot(a, b))


def exported(*specs, f=program, **words):
    checks = list(jaxpipe.EXPORT_CHECKS)
    return export.export(f, disabled_checks=checks, **words)(*specs)


def shape(*dims, **words):
    return jax.ShapeDtypeStruct(dims, np.float32, **words)


def test_without_the_disabled_checks_jax_refuses() -> None:
    with pytest.raises(ValueError, match="jaxpipe_host"):
        export.export(program)(A, B)


def test_an_exported_program_carries_the_kernel_and_round_trips() -> None:
    found = exported(A, B)
    assert "jaxpipe_host" in found.mlir_module()
    loaded = export.deserialize(found.serialize())
    assert_close(loaded.call(A, B), WANT, 16)


LOAD = """
import sys, numpy as np, jaxpipe
from jax import export
loaded = export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
a, b, want = (np.load(name) for name in sys.argv[2:])
np.testing.assert_allclose(loaded.call(a, b), want, atol=1e-5)
"""


def test_a_fresh_process_runs_it_after_importing_jaxpipe(tmp_path) -> None:
    (tmp_path / "program").write_bytes(exported(A, B).serialize())
    arrays = {"a": A, "b": B, "want": np.asarray(WANT)}
    for name, value in arrays.items():
        np.save(tmp_path / name, value)
    files = [tmp_path / "program", *(tmp_path / f"{name}.npy" for name in arrays)]
    subprocess.run([sys.executable, "-c", LOAD, *map(str, files)], check=True, timeout=120)


def test_a_gradient_is_exported_with_it() -> None:
    loaded = export.deserialize(exported(A, B).serialize(vjp_order=2))
    loss = lambda f: jax.grad(lambda b: (f(A, b) ** 2).sum())(jnp.asarray(B))  # noqa: E731
    assert_close(loss(loaded.call), loss(lambda a, b: jnp.sin(a @ b)), 64, slack=4)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_program_over_several_devices(kind) -> None:
    mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    a, b = jax.device_put(A, rows), jax.device_put(B, whole)
    specs = shape(6, 16, sharding=rows), shape(16, 5, sharding=whole)
    with jax.set_mesh(mesh):
        found = exported(*specs)
        assert ("jaxpipe_host" in found.mlir_module()) == (kind == AxisType.Explicit)
        loaded = jax.jit(export.deserialize(found.serialize()).call)
        np.testing.assert_allclose(loaded(a, b), WANT, atol=1e-5)


def test_a_shard_map_is_exported_with_its_kernels() -> None:
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    body = jax.shard_map(program, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    specs = shape(6, 16, sharding=rows), shape(16, 5, sharding=whole)
    found = exported(*specs, f=jax.jit(body))
    assert "jaxpipe_host" in found.mlir_module()
    loaded = jax.jit(export.deserialize(found.serialize()).call)
    got = loaded(jax.device_put(A, rows), jax.device_put(B, whole))
    np.testing.assert_allclose(got, WANT, atol=1e-5)
