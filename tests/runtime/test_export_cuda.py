"""Programs for a GPU made on a machine without one: exported, stored, the same in every process."""

import hashlib
import os
import re
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxpipe

TARGET = "jaxpipe_cuda_launch"
PROGRAM = """
    import jax, jax.numpy as jnp, jaxpipe
    def layer(x, w, b):
        return jaxpipe.dot(x, w, bias=b, activation="gelu_tanh")
    def spec(*dims):
        return jax.ShapeDtypeStruct(dims, jnp.bfloat16)
    arguments = spec(64, 128), spec(128, 256), spec(256)
"""


def run_python(code: str, **env: str) -> str:
    """Standard output of a fresh process."""
    body = textwrap.dedent(PROGRAM) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", body], env={**os.environ, "JAX_PLATFORMS": "cpu", **env},
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


LOWER = """
    with jaxpipe.options(target="h200"):
        text = jax.jit(layer).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    import hashlib
    print(hashlib.sha256(text.encode()).hexdigest(), text.count("@jaxpipe_cuda_launch"))
"""


@pytest.mark.slow
def test_the_lowered_text_is_the_same_in_every_process(tmp_path) -> None:
    found = {
        run_python(LOWER, PYTHONHASHSEED=seed, JAXPIPE_CACHE_DIR=str(tmp_path / seed))
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert found.pop().endswith(" 1")


def layer(x, w, b):
    return jaxpipe.dot(x, w, bias=b, activation="gelu_tanh")


def spec(*dims):
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def exported(rows, *platforms: str, target: str = "h200") -> export.Exported:
    with jaxpipe.options(target=target):
        return export.export(
            jax.jit(layer), platforms=platforms, disabled_checks=jaxpipe.EXPORT_CHECKS
        )(spec(rows, 128), spec(128, 256), spec(256))


def test_a_program_for_a_gpu_is_exported_on_a_cpu_and_read_back_elsewhere(tmp_path) -> None:
    program = exported(64, "cuda")
    (tmp_path / "program").write_bytes(program.serialize())
    code = f"""
        from jax import export
        program = export.deserialize(bytearray(open({str(tmp_path / "program")!r}, "rb").read()))
        print(program.platforms, program.mlir_module().count("@{TARGET}"))
    """
    assert run_python(code) == "('cuda',) 1"


def test_no_path_or_process_shows_in_an_attribute() -> None:
    text = exported(64, "cuda").mlir_module()
    attributes = " ".join(re.findall(r"(?:key|names) = \"([^\"]*)\"", text))
    assert "sm_90a" in attributes
    assert "/" not in attributes
    assert str(os.getpid()) not in attributes


@pytest.mark.parametrize("platforms", [("cpu", "cuda"), ("cuda", "cpu")], ids="-".join)
def test_a_program_for_both_platforms_carries_both_kernels_and_runs_the_right_one(
    platforms: tuple[str, str],
) -> None:
    with jaxpipe.coverage() as ledger:
        program = exported(64, *platforms)
    assert {site.implementation for site, _ in ledger.rows()} == {"host", "cuda"}
    loaded = export.deserialize(bytearray(program.serialize()))
    text = loaded.mlir_module()
    assert (text.count(f"@{TARGET}"), text.count("@jaxpipe_host_gemm")) == (1, 1)
    arguments = [
        jnp.full(a.shape, 0.125, a.dtype) for a in (spec(64, 128), spec(128, 256), spec(256))
    ]
    run = jax.jit(loaded.call)
    compiled = run.lower(*arguments).compile().as_text()
    assert "jaxpipe_host_gemm" in compiled
    assert TARGET not in compiled
    np.testing.assert_array_equal(run(*arguments), jax.jit(layer)(*arguments))


@pytest.mark.parametrize("target", ["a100", "h200"])
def test_a_symbolic_batch_for_a_gpu_carries_one_kernel(target: str) -> None:
    (rows,) = export.symbolic_shape("rows")
    with jaxpipe.coverage() as ledger:
        program = exported(rows, "cuda", target=target)
    assert program.mlir_module().count(f"@{TARGET}") == 1
    assert (ledger.taken, ledger.total) == (1, 1)
    assert "dynamic:m" in next(site.problem for site, _ in ledger.rows())


@pytest.mark.parametrize("dims", [("b, 64", "64, n"), ("8, k", "k, 32")], ids="; ".join)
def test_symbolic_columns_and_terms_for_a_gpu_are_xlas_and_counted(dims: tuple[str, str]) -> None:
    x, w = export.symbolic_args_specs((spec(8, 64), spec(64, 32)), [*dims])
    with jaxpipe.options(target="h200"), jaxpipe.coverage() as ledger:
        program = export.export(
            jax.jit(lambda x, w: jaxpipe.dot(x, w)), platforms=("cuda",),
            disabled_checks=jaxpipe.EXPORT_CHECKS,
        )(x, w)  # fmt: skip
    assert TARGET not in program.mlir_module()
    assert ledger.taken == 0 < ledger.total
    assert "on GPUs the rows of lhs" in next(iter(ledger.left))


def test_a_symbolic_batch_for_both_platforms_is_right_on_any(tmp_path) -> None:
    (rows,) = export.symbolic_shape("rows")
    program = export.deserialize(bytearray(exported(rows, "cpu", "cuda").serialize()))
    keys = jax.random.split(jax.random.key(0), 3)
    x, w, b = (
        jax.random.normal(k, s, jnp.bfloat16)
        for k, s in zip(keys, ((5, 128), (128, 256), (256,)), strict=True)
    )
    got = np.asarray(program.call(x, w, b)).astype(np.float32)
    acc = np.asarray(x).astype(np.float32) @ np.asarray(w).astype(np.float32)
    wanted = np.asarray(jax.nn.gelu(jnp.asarray(acc + np.asarray(b).astype(np.float32))))
    np.testing.assert_allclose(got, wanted, rtol=0.02, atol=0.1)


CACHED = """
    import jax.monitoring
    hits = []
    jax.monitoring.register_event_listener(
        lambda name, **kw: hits.append(name) if name.endswith("cache_hits") else None
    )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    run = jax.jit(layer)
    y = run(*(jnp.ones(a.shape, a.dtype) for a in arguments))
    import hashlib, numpy
    n = sum("cache_hits" in h for h in hits)
    print(n > 0, hashlib.sha256(numpy.asarray(y).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_persistent_cache_hits_in_a_second_process_with_the_same_bits(tmp_path) -> None:
    first = run_python(CACHED, JAX_COMPILATION_CACHE_DIR=str(tmp_path)).split()
    second = run_python(CACHED, JAX_COMPILATION_CACHE_DIR=str(tmp_path)).split()
    assert second[0] == "True"
    assert first[1] == second[1]
    assert len(hashlib.sha256().hexdigest()) == len(first[1])
