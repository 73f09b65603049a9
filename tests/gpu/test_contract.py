"""On a real GPU: every kernel family is right, repeats its bits, and errors are errors.

Run by benchmarks/device/a_contract.py; the tests named sample also run under compute-sanitizer.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpipe
from jaxpipe.choose import choose
from jaxpipe.compiler import compile_kernel
from jaxpipe.epilogue import Epilogue
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.runtime import device, execute, reference
from jaxpipe.runtime.direct import DirectBench
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import Plan
from jaxpipe.space import gpu_space

pytestmark = pytest.mark.gpu

PLAN = Plan(blocks=2, sample_s=0.0005, warmup_s=0.0, rotate_bytes=1, max_sets=2, max_load=1e9)
FULL = Epilogue(0.5, "column", "float32", "gelu_erf", residual=True, save_preactivation=True)
TT, NT = Layout(True), Layout(transposed=True)
PROBLEMS: list[Problem] = [
    Matmul(512, 768, 768, epilogue=FULL),
    Matmul(257, 129, 66, dtype="float16", epilogue=Epilogue(bias="row", activation="silu")),
    Matmul(128, 128, 7),
    Matmul(1, 3072, 768),
    Matmul(8, 4096, 4096, rhs=NT),
    Matmul(256, 256, 256, lhs=TT),
    Matmul(256, 256, 256, lhs=TT, rhs=TT),
    Matmul(128, 128, 64, (3, 5), rhs=NT, epilogue=FULL),
    Matmul(300, 200, 4096, out_dtype="float32"),
    Matmul(256, 256, 256, dtype="float32", precision="tf32"),
    Matmul(256, 256, 256, dtype="int8"),
    Conv2d(4, 28, 28, 64, 64, (3, 3), padding=((1, 1), (1, 1)), epilogue=Epilogue(bias="column")),
    Conv2d(2, 15, 13, 32, 48, (3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2)),
]


@pytest.fixture(scope="session")
def gpu():
    (first, *_) = device.visible_gpus() or (None,)
    assert first is not None, "these tests need a GPU: run python -m jaxpipe doctor"
    return device.of_jax(first)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_chosen_kernel_is_right_and_repeats_its_bits(gpu, problem) -> None:
    choice = choose(problem, executor="cuda", device=gpu)
    (got,) = measure(problem, [choice.schedule], executor="cuda", arch=gpu.arch, plan=PLAN)
    assert (got.status, got.reason) == ("ok", "")


@pytest.mark.parametrize("problem", PROBLEMS[:6], ids=str)
def test_schedules_across_the_space_are_right(gpu, problem) -> None:
    space = gpu_space(problem, gpu)
    bench = DirectBench(problem, plan=PLAN)
    rows = np.random.default_rng(0).permutation(len(space))[:12]
    kernels = {i: compile_kernel(problem, space.schedule(i), gpu) for i in rows}
    found = {str(space.schedule(i)): bench.measure(k) for i, k in kernels.items()}
    assert {s: m.reason for s, m in found.items() if m.status != "ok"} == {}


@pytest.mark.parametrize("problem", [PROBLEMS[0], PROBLEMS[1], PROBLEMS[11]], ids=str)
def test_sample_for_the_sanitizer(gpu, problem) -> None:
    if isinstance(problem, Matmul):
        problem = dataclasses.replace(problem, m=min(problem.m, 257), n=min(problem.n, 256))
    schedule = choose(problem, executor="cuda", device=gpu).schedule
    operands = reference.random_operands(problem, 0)
    results = execute.run(problem, schedule, operands, executor="cuda", arch=gpu.arch)
    assert reference.sampled_error(problem, operands, results) <= 1.0


def test_dot_works_at_once_and_is_ours(gpu) -> None:
    x, w = jnp.ones((512, 768), jnp.bfloat16), jnp.ones((768, 512), jnp.bfloat16)
    with jaxpipe.coverage() as coverage:
        y = jax.jit(jaxpipe.dot)(x, w)
    assert coverage.taken == 1
    assert np.all(np.asarray(y) == 768)


def test_a_kernel_for_another_gpu_is_an_error_with_both_names(gpu) -> None:
    other = "sm_80" if gpu.arch != "sm_80" else "sm_90"
    problem = Matmul(128, 128, 64)
    schedule = next(iter([gpu_space(problem, device.named("a100")).schedule(0)]))
    operands = reference.random_operands(problem, 0)
    with pytest.raises(Exception, match=f"is for {other}, device 0 is"):
        jax.block_until_ready(execute.run(problem, schedule, operands, executor="cuda", arch=other))
