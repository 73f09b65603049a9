"""Whole programs through jaxpipe beside XLA's own, compiled for GPUs that are not there.

XLA's side leaves its products to cuBLAS: what Triton would do is decided by measuring, which needs
a GPU. Both sides run the same Flax code.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

pytestmark = pytest.mark.xla_gpu

import jaxpipe  # noqa: E402
from benchmarks import gpu_compile, hlo  # noqa: E402
from benchmarks.models import bert, gpt2, resnet  # noqa: E402
from benchmarks.models.products import JAXPIPE, XLA  # noqa: E402
from tests.xla_gpu.programs import (  # noqa: E402
    XLA_SLICES_IN_PLACE,
    kinds,
    layouts_are_row_major,
    ours,
    shape,
)

TARGETS = ("h200", "a100")
DTYPE = jnp.bfloat16
M, N, K = 512, 3072, 768


# ------------------------------------------------------------------ one product
def product(layout: str):
    """x @ w with operands stored as `layout` says, and their shapes."""
    lhs_t, rhs_t = (letter == "t" for letter in layout)
    dimensions = (((0 if lhs_t else 1,), (1 if rhs_t else 0,)), ((), ()))
    x = shape(K, M) if lhs_t else shape(M, K)
    w = shape(N, K) if rhs_t else shape(K, N)
    return lambda x, w: jaxpipe.dot_general(x, w, dimensions), (x, w)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_dot_in_every_layout_is_one_call_on_the_operands_as_they_lie(target, layout) -> None:
    function, arguments = product(layout)
    program = gpu_compile.compile_for(target, function, *arguments)
    module = hlo.parse(program.text)
    (instruction,) = ours(module)
    assert layouts_are_row_major(instruction)
    assert {module.entry.instructions[o].opcode for o in instruction.operands} == {"parameter"}
    assert set(kinds(program.text)) == {"product"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("activation", ["relu", "gelu_tanh", "gelu_erf", "silu", "tanh"])
@pytest.mark.parametrize("first", [False, True], ids=["residual last", "residual first"])
def test_an_epilogue_leaves_no_pass_over_the_result(target, activation, first) -> None:
    def function(x, w, b, r):
        return jaxpipe.dot(x, w, bias=b, activation=activation, residual=r, residual_first=first)

    arguments = (shape(M, K), shape(K, N), shape(N), shape(M, N))
    program = gpu_compile.compile_for(target, function, *arguments)
    assert set(kinds(program.text)) == {"product"}


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_are_made_for_the_device_that_the_program_is_lowered_for(target, monkeypatch):
    monkeypatch.setenv("JAXPIPE_TARGET", "l4")
    function, arguments = product("nn")
    (instruction,) = ours(hlo.parse(gpu_compile.compile_for(target, function, *arguments).text))
    arch = {"h200": "sm_90a", "a100": "sm_80"}[target]
    assert f"\\0A{arch}\\0A" in instruction.attributes


# ------------------------------------------------------------------ models
@dataclass(frozen=True)
class Model:
    """A function of Products, and its arguments."""

    build: object
    arguments: tuple
    products: int  # calls of ours at least, loops unrolled


def in_dtype(tree):
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, DTYPE), tree)


def bert_layer() -> Model:
    config = bert.BertConfig(layers=1, hidden=768, heads=12, intermediate=3072)
    x, mask = shape(8, 128, 768), shape(8, 1, 1, 128, dtype="float32")
    init = bert.Layer(config, XLA).init
    params = in_dtype(jax.eval_shape(init, jax.random.key(0), x, mask))

    def build(products):
        layer = bert.Layer(config, products)
        return lambda params, x, mask: layer.apply(params, x, mask)

    return Model(build, (params, x, mask), 8)


def gpt2_block_scanned() -> Model:
    """Four blocks with stacked weights, as large models are written."""
    layers = 4
    config = gpt2.Gpt2Config(layers=layers, hidden=768, heads=12)
    x, cache = shape(1, 128, 768), (shape(1, 128, 12, 64),) * 2
    init = functools.partial(gpt2.Block(config, XLA).init, start=jnp.int32(0))
    one = jax.eval_shape(init, jax.random.key(0), x, cache)
    stacked = jax.tree.map(lambda a: jax.ShapeDtypeStruct((layers, *a.shape), DTYPE), one)

    def build(products):
        block = gpt2.Block(config, products)

        def run(stacked, x, cache):
            def step(x, params):
                return block.apply(params, x, cache, jnp.int32(0))[0], None

            return jax.lax.scan(step, x, stacked)[0]

        return run

    return Model(build, (stacked, x, cache), 6 * layers)


def training_step() -> Model:
    """Loss, gradients and update of a two-layer perceptron."""
    weights = (shape(768, 3072), shape(3072), shape(3072, 768), shape(768))

    def build(products):
        def loss(weights, x, y):
            w1, b1, w2, b2 = weights
            hidden = products.dot(x, w1, bias=b1, activation="gelu_tanh")
            out = products.dot(hidden, w2, bias=b2)
            return jnp.mean(jnp.square((out - y).astype(jnp.float32)))

        def step(weights, x, y):
            grads = jax.grad(loss)(weights, x, y)
            return jax.tree.map(lambda w, g: w - 0.01 * g.astype(w.dtype), weights, grads)

        return step

    return Model(build, (weights, shape(512, 768), shape(512, 768)), 5)


def resnet_block(channels: int, features: int, stride: int) -> Model:
    """A bottleneck whose shortcut is projected: four convolutions, relu after the last sum."""
    x = shape(4, 56, 56, channels)
    init = resnet.Block(features, XLA, True, stride).init
    params = in_dtype(jax.eval_shape(init, jax.random.key(0), x))

    def build(products):
        block = resnet.Block(features, products, True, stride)
        return lambda params, x: block.apply(params, x)

    return Model(build, (params, x), 4)


MODELS = {
    "bert layer": bert_layer,
    "scanned gpt2": gpt2_block_scanned,
    "training step": training_step,
}


@functools.cache
def sides(name: str, target: str):
    """(jaxpipe's program, XLA's with cuBLAS) of a model."""
    model = MODELS[name]()
    mine = gpu_compile.compile_for(target, model.build(JAXPIPE), *model.arguments)
    options = gpu_compile.CUBLAS_ONLY
    theirs = gpu_compile.compile_for(target, model.build(XLA), *model.arguments, options=options)
    return mine, theirs


@pytest.fixture(params=[(m, t) for m in MODELS for t in TARGETS], ids=lambda p: f"{p[0]} {p[1]}")
def programs(request):
    return (MODELS[request.param[0]](), *sides(*request.param))


def rows(program, kind: str):
    return [k for k in hlo.kernels(hlo.parse(program.text)) if k.kind == kind]


def test_every_product_of_the_model_is_ours(programs) -> None:
    model, mine, _ = programs
    products = rows(mine, "product")
    assert {k.target for k in products} == {hlo.OURS}
    assert sum(k.launches for k in products) >= model.products


def test_no_transpose_or_copy_is_added_around_our_calls(programs) -> None:
    _, mine, theirs = programs
    moved = [sum(k.launches * k.read_bytes for k in rows(p, "copy")) for p in (mine, theirs)]
    assert moved[0] <= moved[1]
    assert all(layouts_are_row_major(i) for i in ours(hlo.parse(mine.text)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [(64, 64, 1), (256, 128, 2)], ids=str)
def test_a_residual_block_moves_no_more_bytes_than_with_cudnn(target, sizes) -> None:
    model = resnet_block(*sizes)
    programs = [
        gpu_compile.compile_for(target, model.build(products), *model.arguments)
        for products in (JAXPIPE, XLA)
    ]
    found = [hlo.kernels(hlo.parse(program.text)) for program in programs]
    moved = [sum(k.launches * (k.read_bytes + k.written_bytes) for k in rows) for rows in found]
    assert moved[0] <= moved[1]
    assert sum(k.target == hlo.OURS for k in found[0]) == model.products
    large = [k for k in found[0] if k.kind == "elementwise" and k.written_bytes > 2**20]
    assert large == []  # no pass over an image is left to XLA


@XLA_SLICES_IN_PLACE
def test_a_scan_reads_its_stacked_weights_in_place() -> None:
    """XLA copies each slice before cuBLAS calls with epilogues; ours take the slice as it lies."""
    mine, theirs = sides("scanned gpt2", "h200")
    copied = [max(k.read_bytes for k in rows(p, "copy")) for p in (mine, theirs)]
    assert copied[0] < 768 * 768 * 2 <= copied[1]


def test_fused_epilogues_move_fewer_bytes_with_fewer_elementwise_kernels(programs) -> None:
    _, mine, theirs = programs
    counted = [
        [
            sum(k.launches for k in rows(p, "elementwise") if k.written_bytes > 1024),
            sum(k.launches * (k.read_bytes + k.written_bytes) for k in rows(p, "elementwise")),
        ]
        for p in (mine, theirs)
    ]
    assert counted[0][0] <= counted[1][0]
    assert counted[0][1] <= counted[1][1]


def test_our_calls_sit_inside_cuda_graphs(programs) -> None:
    """Where XLA captures all of its own program it captures all of ours. In a loop it leaves out
    what reads slices of stacked weights in place, its own products too."""
    _, mine, theirs = programs
    captured = [kind for buffer in mine.command_buffers for kind in buffer.kinds]
    assert "kCustomCall" in captured
    if not theirs.loose:
        assert mine.loose == ()


def scratch_bytes(program) -> int:
    """Workspace that our calls declare: all of it at once is the worst case."""
    declared = 0
    for instruction in ours(hlo.parse(program.text)):
        declared += sum(s.size_bytes for s in instruction.shapes if s.dtype == "u8")
    return declared


def test_temporary_memory_stays_within_xlas_plus_the_declared_workspace(programs) -> None:
    _, mine, theirs = programs
    assert mine.temp_bytes <= theirs.temp_bytes + scratch_bytes(mine) + 4096
