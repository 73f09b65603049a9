"""Exported programs with a symbolic batch, refined to sizes by XLA:GPU: they carry our call."""

import jax
import jax.numpy as jnp
import pytest
from jax import export

pytestmark = pytest.mark.xla_gpu

import jaxpipe  # noqa: E402
from benchmarks import gpu_compile, hlo  # noqa: E402
from tests.xla_gpu.programs import kinds, layouts_are_row_major, ours, shape  # noqa: E402

TARGETS = ("h200", "a100")
(B,) = export.symbolic_shape("b")


def layer(x, w, bias):
    return jaxpipe.dot(x, w, bias=bias, activation="gelu")


def step(x, w, bias):
    """Gradients in the rows and in the weight, whose terms are symbolic."""
    return jax.grad(lambda *args: layer(*args).astype(jnp.float32).sum(), (0, 1))(x, w, bias)


def loaded(function, target: str, *shapes) -> export.Exported:
    specs = [jax.ShapeDtypeStruct(dims, jnp.bfloat16) for dims in shapes]
    with jaxpipe.options(target=target):
        program = export.export(
            jax.jit(function), platforms=("cuda",), disabled_checks=jaxpipe.EXPORT_CHECKS
        )(*specs)
    return export.deserialize(bytearray(program.serialize()))


@pytest.mark.parametrize("target", TARGETS)
def test_one_program_refined_to_two_sizes_carries_the_same_kernel(target: str) -> None:
    program = loaded(layer, target, (B, 128, 768), (768, 512), (512,))
    recipes = set()
    for batch in (1, 6):
        compiled = gpu_compile.compile_for(
            target, program.call, shape(batch, 128, 768), shape(768, 512), shape(512)
        )
        assert kinds(compiled.text) == {"product": 1}
        (call,) = ours(hlo.parse(compiled.text))
        assert len(call.operands) == 3  # XLA took the shapes of results off the operands again
        assert layouts_are_row_major(call)
        recipes.add(call.attributes.split("recipe = ")[1].split("]")[0])
    assert len(recipes) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_batch_of_products_is_one_call(target: str) -> None:
    def products(x, y):
        return jaxpipe.einsum("bmk,bkn->bmn", x, y)

    program = loaded(products, target, (B, 64, 128), (B, 128, 64))
    compiled = gpu_compile.compile_for(target, program.call, shape(5, 64, 128), shape(5, 128, 64))
    assert kinds(compiled.text) == {"product": 1}
    assert len(ours(hlo.parse(compiled.text))) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_training_step_carries_what_has_no_symbolic_terms(target: str) -> None:
    program = loaded(step, target, (B, 768), (768, 512), (512,))
    compiled = gpu_compile.compile_for(
        target, program.call, shape(256, 768), shape(768, 512), shape(512)
    )
    assert len(ours(hlo.parse(compiled.text))) == 2  # forward, and the gradient in the rows
