"""implementation="interpret" under jit: right numbers, and a failing call for a broken kernel."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpipe
from jaxpipe.compiler import compile_kernel
from jaxpipe.errors import UnsupportedError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.problem import Matmul
from jaxpipe.runtime import launch
from jaxpipe.runtime.reference import random_operands
from jaxpipe.schedule import GpuSchedule
from tests.tolerance import assert_close

PROBLEM = Matmul(64, 64, 96)
SCHEDULE = GpuSchedule(block_m=64, block_n=64, block_k=32, smem_stages=3)


def broken(what: str, instead: str) -> CompiledKernel:
    """The kernel with one instruction of its PTX replaced, under a key of its own."""
    compiled = compile_kernel(PROBLEM, SCHEDULE, "sm_80")
    assert what in compiled.ptx
    ptx = compiled.ptx.replace(what, instead)
    return dataclasses.replace(compiled, ptx=ptx, key=f"{compiled.key}{what}")


def run(compiled: CompiledKernel) -> jax.Array:
    operands = random_operands(PROBLEM, 0)
    return jax.jit(lambda o: launch.call(compiled, o, executor="interpret")[0])(operands)


@pytest.mark.parametrize("target", ["a100", "h100"])
def test_a_fused_dot_is_right_under_jit(target: str) -> None:
    x, w = jnp.ones((33, 48), jnp.bfloat16), jnp.arange(48 * 40.0).reshape(48, 40) / 1000
    with jaxpipe.options(implementation="interpret", target=target):
        got = jax.jit(lambda a, b: jaxpipe.dot(a, b, activation="relu"))(x, w.astype(x.dtype))
    want = jax.nn.relu(x.astype(jnp.float32) @ w.astype(x.dtype).astype(jnp.float32))
    assert_close(np.asarray(got), np.asarray(want.astype(x.dtype)), 48)


def test_true_float32_is_refused_by_name_and_left_to_xla_otherwise() -> None:
    x = jnp.ones((32, 32), jnp.float32)
    product = jax.jit(lambda a: jaxpipe.dot(a, a, precision="highest"))
    with (
        jaxpipe.options(implementation="interpret", target="a100"),
        pytest.raises(UnsupportedError, match="multiply float32 as TF32"),
    ):
        product(x)
    with jaxpipe.options(target="h200"), jaxpipe.coverage() as ledger:
        text = product.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert "jaxpipe_cuda_launch" not in text
    assert (ledger.total, ledger.taken) == (1, 0)
    assert "multiply float32 as TF32" in next(iter(ledger.left))


def test_gradients_are_interpreted_too() -> None:
    x, w = jnp.ones((16, 32), jnp.float16), jnp.full((32, 24), 0.5, jnp.float16)
    with jaxpipe.options(implementation="interpret", target="a100"):
        got = jax.jit(jax.grad(lambda a: jaxpipe.dot(a, w).astype(jnp.float32).sum()))(x)
    assert_close(np.asarray(got), np.full((16, 32), 12.0, np.float16), 24)


def test_a_hazard_fails_the_call_and_is_named() -> None:
    compiled = broken("cp.async.wait_group", "cp.async.commit_group; //")
    with pytest.raises(jax.errors.JaxRuntimeError, match="hazards"):
        run(compiled).block_until_ready()


def test_a_fault_fails_the_call_and_is_named() -> None:
    compiled = broken("bar.sync \t0;", "trap;")
    with pytest.raises(jax.errors.JaxRuntimeError, match="trap"):
        run(compiled).block_until_ready()
