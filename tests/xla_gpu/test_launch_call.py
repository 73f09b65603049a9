"""Our custom call inside XLA:GPU's programs: no copies, no extra memory, inside CUDA graphs.

Compiled for GPUs that are not there; the kernels are stand-ins, so only what XLA does is tested.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

pytestmark = pytest.mark.xla_gpu

from benchmarks import gpu_compile, hlo  # noqa: E402
from jaxpipe.epilogue import Epilogue  # noqa: E402
from jaxpipe.problem import Layout, Matmul  # noqa: E402
from jaxpipe.runtime import launch  # noqa: E402
from tests.xla_gpu.programs import (  # noqa: E402
    XLA_SLICES_IN_PLACE,
    kinds,
    layouts_are_row_major,
    ours,
    shape,
    stand_in,
)

M, N, K = 512, 3072, 768


@pytest.fixture(params=["h200", "a100"])
def target(request) -> str:
    return request.param


def call(compiled, *operands):
    roles = ("lhs", "rhs", "bias", "residual")
    return launch.call(compiled, dict(zip(roles, operands, strict=False)), executor="cuda")


def compile_for(target, function, *arguments, **options):
    return gpu_compile.compile_for(target, function, *arguments, **options)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout_is_taken_as_it_lies(target, layout) -> None:
    lhs, rhs = (Layout(letter == "t") for letter in layout)
    kernel = stand_in(Matmul(M, N, K, lhs=lhs, rhs=rhs))
    x = shape(K, M) if lhs.transposed else shape(M, K)
    w = shape(N, K) if rhs.transposed else shape(K, N)
    program = compile_for(target, lambda x, w: call(kernel, x, w)[0], x, w)
    assert kinds(program.text) == {"product": 1}
    (instruction,) = ours(hlo.parse(program.text))
    assert layouts_are_row_major(instruction)
    assert program.temp_bytes == 0


def test_an_epilogue_leaves_no_pass_over_the_result(target) -> None:
    epilogue = Epilogue(bias="column", activation="gelu_tanh", residual=True)
    kernel = stand_in(Matmul(M, N, K, epilogue=epilogue))
    arguments = (shape(M, K), shape(K, N), shape(N), shape(M, N))
    program = compile_for(target, lambda *a: call(kernel, *a)[0], *arguments)
    assert kinds(program.text) == {"product": 1}


def test_workspace_is_memory_of_the_program_and_nothing_else(target) -> None:
    kernel = stand_in(Matmul(M, N, K), workspace_bytes=1_000_000)
    program = compile_for(target, lambda x, w: call(kernel, x, w)[0], shape(M, K), shape(K, N))
    assert 1_000_000 <= program.temp_bytes <= 1_000_000 + 2 * launch.WORKSPACE_ALIGN_BYTES
    assert kinds(program.text) == {"product": 1}


def test_calls_and_xlas_kernels_share_one_cuda_graph(target) -> None:
    kernel = stand_in(Matmul(M, K, K, epilogue=Epilogue(bias="column")))

    def chain(x, w, b):
        for _ in range(4):
            (y,) = call(kernel, x, w, b)
            x = jnp.tanh(y) + x
        return x

    program = compile_for(target, chain, shape(M, K), shape(K, K), shape(K))
    (buffer,) = program.command_buffers
    assert buffer.kinds.count("kCustomCall") == 4
    assert program.loose == ()


@XLA_SLICES_IN_PLACE
def test_a_scan_hands_slices_of_its_weights_over_without_copying(target) -> None:
    kernel = stand_in(Matmul(M, K, K, epilogue=Epilogue(bias="column")))

    def scanned(x, ws, bs):
        return jax.lax.scan(lambda x, wb: (jnp.tanh(call(kernel, x, *wb)[0]), None), x, (ws, bs))[0]

    program = compile_for(target, scanned, shape(M, K), shape(12, K, K), shape(12, K))
    products = [k for k in hlo.kernels(hlo.parse(program.text)) if k.kind == "product"]
    assert [(k.target, k.launches) for k in products] == [(hlo.OURS, 12)]
    read = 2 * (M * K + K * K + K)
    assert read <= products[0].read_bytes <= read + 16  # and the loop's counter
    copied = sum(
        k.launches * k.read_bytes for k in hlo.kernels(hlo.parse(program.text)) if k.kind == "copy"
    )
    assert copied <= 2 * M * K + 1024  # the carry, once; never the weights


@XLA_SLICES_IN_PLACE
def test_a_slice_that_would_be_misaligned_is_copied_first(target) -> None:
    """12 biases of 770 elements start at multiples of 1540 bytes: kernels need 16."""
    n = 770
    kernel = stand_in(Matmul(M, n, K, epilogue=Epilogue(bias="column")))

    def scanned(x, ws, bs):
        def step(x, wb):
            return x + jnp.sum(call(kernel, x, *wb)[0]), None

        return jax.lax.scan(step, x, (ws, bs))[0]

    program = compile_for(target, scanned, shape(M, K), shape(12, K, n), shape(12, n))
    (instruction,) = ours(hlo.parse(program.text))
    module = hlo.parse(program.text)
    within = next(c for c in module.computations.values() if instruction.name in c.instructions)
    source = within.instructions[instruction.operands[2]]
    assert source.opcode not in ("dynamic-slice", "slice", "bitcast")


def test_the_cubin_and_recipe_reach_the_executable_as_they_were(target) -> None:
    kernel = stand_in(Matmul(M, N, K))
    program = compile_for(target, lambda x, w: call(kernel, x, w)[0], shape(M, K), shape(K, N))
    (instruction,) = ours(hlo.parse(program.text))
    assert 'names = "stand_in\\0Asm_90a\\0Aentry"' in instruction.attributes
    assert 'cubin = "x\\DA' in instruction.attributes


def test_a_recipe_that_cannot_be_launched_fails_when_the_program_is_compiled(target) -> None:
    good = stand_in(Matmul(M, N, K))
    bad = replace(good.kernel, launches=(replace(good.kernel.launches[0], grid=(0, 1, 1)),))
    kernel = replace(good, kernel=bad)
    with pytest.raises(Exception, match=r"\(grid\) is 0, limits are 1 to"):
        compile_for(target, lambda x, w: call(kernel, x, w)[0], shape(M, K), shape(K, N))
