"""Runs the programs named on its command line with JAX's persistent cache in a folder, and prints
one line a program: its name, cache hits, cache misses, whether the result is right.

    python -m tests.ops.cached_programs FOLDER NAME...
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpipe

A = np.full((8, 4), 0.5, np.float32)
B = np.full((4, 4), 0.25, np.float32)  # A @ B is 0.5 everywhere


def _place(kind):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
    return mesh, jax.device_put(A, NamedSharding(mesh, P("x")))


def one_device() -> bool:
    return bool((jax.jit(lambda a: jaxpipe.dot(a, B))(A) == 0.5).all())


def fused(activation: str, want: float) -> bool:
    got = jax.jit(lambda a: jaxpipe.dot(a, B, activation=activation))(A)
    return bool(np.allclose(got, want, atol=1e-4))


def explicit() -> bool:
    mesh, a = _place(AxisType.Explicit)
    with jax.set_mesh(mesh):
        return bool((jax.jit(lambda a: jaxpipe.dot(a, B))(a) == 0.5).all())


def shard_map() -> bool:
    mesh, a = _place(AxisType.Auto)
    body = jax.shard_map(
        lambda a: jaxpipe.dot(a, jnp.asarray(B)), mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )
    return bool((jax.jit(body)(a) == 0.5).all())


def automatic(activation: str | None = None, want: float = 0.5) -> bool:
    _, a = _place(AxisType.Auto)
    got = jax.jit(lambda a: jaxpipe.dot(a, B, activation=activation))(a)
    return bool(np.allclose(got, want, atol=1e-4))


TANH, SILU = float(np.tanh(0.5)), float(0.5 / (1 + np.exp(-0.5)))
PROGRAMS = {
    "one_device": one_device,
    "fused_tanh": lambda: fused("tanh", TANH),
    "fused_silu": lambda: fused("silu", SILU),
    "explicit": explicit,
    "shard_map": shard_map,
    "automatic": automatic,
    "automatic_tanh": lambda: automatic("tanh", TANH),
    "automatic_silu": lambda: automatic("silu", SILU),
}
COUNTS = {"cache_hits": 0, "cache_misses": 0}


def _count(event: str, **words: object) -> None:
    name = event.rsplit("/", 1)[-1]
    if name in COUNTS:
        COUNTS[name] += 1


def main(folder: str, names: list[str]) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
    jax.monitoring.register_event_listener(_count)
    for name in names:
        COUNTS.update(cache_hits=0, cache_misses=0)
        right = PROGRAMS[name]()
        print(name, COUNTS["cache_hits"], COUNTS["cache_misses"], right)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
