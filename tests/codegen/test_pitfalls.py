"""Every fault of research/cuda.md section 11 that concerns the mma.sync family has a test here.

TESTS names, by the item's number there, the test that fails when the emitters have that fault;
OTHERS says why the other items are none of this family's. The numbers together are all of them.
"""

from __future__ import annotations

import pathlib
import re
import zlib
from collections.abc import Callable
from dataclasses import fields, replace

import jax
import numpy as np
import pytest

from jaxpipe import compiler
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import CompileError
from jaxpipe.kernel import Launch
from jaxpipe.legality import check, warnings
from jaxpipe.problem import Matmul
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode
from jaxpipe.runtime.launch import attributes_of
from jaxpipe.schedule import GpuSchedule
from jaxpipe.toolchain import nvcc, nvrtc
from tests.codegen import test_ampere
from tests.codegen.pitfall_faults import (
    FAULTS,
    SCHEDULE,
    SM_80,
    SPLIT,
    TAILS,
    broken,
    is_right,
    is_seen,
    ptx_of,
    run,
)
from tests.drawn import draw, inputs

DEVICE = pathlib.Path(compiler.__file__).parent / "codegen" / "device"
WIDE = GpuSchedule(block_m=128, block_n=128, block_k=64, warps_m=2, warps_n=4, smem_stages=2)


@pytest.mark.parametrize("schedule", [SCHEDULE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
def test_the_right_kernel_is_right(schedule: GpuSchedule, mode: Mode) -> None:
    kernel = compiler.emit_kernel(TAILS, schedule, SM_80)
    assert is_right(kernel, ptx_of(kernel.source), mode)


@pytest.mark.parametrize("name", FAULTS)
def test_the_interpreter_sees(name: str) -> None:
    assert is_seen(*broken(FAULTS[name]))


# ------------------------------------------------------------------------------ split-K, launches
def test_16_partial_sums_need_no_counter_and_no_order_of_blocks() -> None:
    """A second launch adds them up: no ticket to reset, no fence around an atomic; the workspace
    may hold what the last call left."""
    kernel = compiler.emit_kernel(TAILS, SPLIT, SM_80)
    ptx = ptx_of(kernel.source)
    assert not re.search(r"\b(atom|red|membar|fence)\b", ptx)
    kept = np.full(kernel.workspace_bytes, 0xFF, np.uint8)
    first, _ = run(kernel, ptx, Mode(), kept)
    again, _ = run(kernel, ptx, Mode("random", "random", 7), kept)
    np.testing.assert_array_equal(first, again)
    swapped = replace(kernel, launches=kernel.launches[::-1])
    assert not is_right(swapped, ptx, Mode())


def test_17_kernels_wait_for_the_kernel_before_by_the_streams_order() -> None:
    """Programmatic dependent launch is not used: no attribute for it, no wait to forget."""
    for schedule in (SCHEDULE, SPLIT):
        assert "griddepcontrol" not in compiler.emit_kernel(TAILS, schedule, SM_80).source
    names = {f.name for f in fields(Launch)}
    assert names == {"entry", "grid", "block", "shared_bytes", "params", "cluster", "tiles"}


# ------------------------------------------------------------------------------ addressing
def test_28_a_warp_tile_is_made_of_whole_ldmatrix_quadruples() -> None:
    reasons = check(replace(SCHEDULE, block_n=24), TAILS, SM_80)
    assert any("block_n=24" in r and "multiple of 16" in r for r in reasons)


def off_period(source: str) -> list[str]:
    """Starts and strides of shared memory that reach into bits that swizzles flip."""
    swizzled = [x for x in re.findall(r"const unsigned \w+ = shared[^;]*;", source) if "^" in x]
    starts = [x for x in swizzled if (m := re.search(r"shared \+ (\d+)", x)) and int(m[1]) % 128]
    strides = re.findall(r"\w+_(?:to|fragment) \+ (?!i )\w+ \* (\d+)", source)
    return starts + [stride for stride in strides if int(stride) % 128]


@pytest.mark.parametrize("first", [0, 150])
def test_29_every_ring_and_stage_leaves_the_swizzled_bits_alone(first: int) -> None:
    for seed in range(first, first + 50):
        assert off_period(compiler.emit_kernel(*draw(seed)).source) == [], seed
    source = compiler.emit_kernel(TAILS, SCHEDULE, SM_80).source
    assert off_period(source.replace("shared + 6144", "shared + 6160"))
    assert off_period(source.replace("* 2048", "* 2064"))


# ------------------------------------------------------------------------------ compiler, driver
def test_30_kernels_are_compiled_for_the_exact_architecture(monkeypatch, tmp_path) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(nvcc, "find", lambda: "nvcc")
    monkeypatch.setattr(nvcc, "_run", lambda path, where, options: commands.append(options))
    with pytest.raises(FileNotFoundError):
        nvcc.compile("", "sm_90a")
    assert "-gencode=arch=compute_90a,code=sm_90a" in commands[0]
    assert not any(option.startswith("-arch") for option in commands[0])
    assert ".target sm_80" in ptx_of(compiler.emit_kernel(TAILS, SCHEDULE, SM_80).source)


def test_31_and_37_spills_of_forced_occupancy_are_warned_of_and_reported() -> None:
    forced = replace(WIDE, min_blocks_per_sm=2)
    epilogue = Epilogue(bias="column", activation="gelu_erf", residual=True)
    problem = Matmul(512, 512, 512, epilogue=epilogue)
    assert warnings(forced, problem, SM_80)
    assert not warnings(WIDE, problem, SM_80)
    for schedule, may_spill in ((forced, True), (WIDE, False)):
        kernel = compiler.compile_kernel(problem, schedule, SM_80)
        assert (kernel.resources[0].spill_store_bytes > 0) == may_spill
    assert "__launch_bounds__(256, 1)" in compiler.emit_kernel(problem, WIDE, SM_80).source
    assert GpuSchedule().min_blocks_per_sm == 1


def test_33_a_name_that_needs_a_header_is_refused() -> None:
    kernel = compiler.emit_kernel(TAILS, SCHEDULE, SM_80)
    assert "#include" not in kernel.source
    with pytest.raises(CompileError, match="uint32_t"):
        nvrtc.compile(kernel.source + "uint32_t extra;\n", "sm_80")


def test_34_the_call_carries_machine_code_not_ptx() -> None:
    kernel = compiler.compile_kernel(TAILS, SCHEDULE, SM_80)
    shape = jax.ShapeDtypeStruct((48,), "bfloat16")
    shapes = {role: shape for role in ("lhs", "rhs", "bias")}
    found = attributes_of(kernel, shapes, "cuda")  # type: ignore[arg-type]
    assert zlib.decompress(found["cubin"]) == kernel.cubin  # type: ignore[arg-type]
    assert kernel.cubin[:4] == b"\x7fELF"
    assert not any(b".target" in v for v in found.values() if isinstance(v, bytes))


def labels(text: str) -> list[str]:
    """Labels of inline assembly that two copies of one function would share."""
    return [name for name in re.findall(r"\$\w+(?:%=)?", text) if not name.endswith("%=")]


def test_35_labels_are_unique_in_every_copy() -> None:
    texts = {path.name: path.read_text() for path in DEVICE.glob("*.cuh")}
    assert {name: labels(text) for name, text in texts.items() if labels(text)} == {}
    assert labels(texts["hopper_barrier.cuh"].replace("%=", ""))


ORDERED = r"cp\.async|ldmatrix|st\.shared|ld\.shared|bar\.sync|mbarrier|fence\."


def loose(text: str) -> list[str]:
    """Inline assembly that the compiler may move over a wait, a barrier or a copy."""
    found = re.findall(r"\basm\b(.*?)\);", text, flags=re.DOTALL)
    ordered = [a for a in found if re.search(ORDERED, a)]
    return [a for a in ordered if not (a.lstrip().startswith("volatile") and '"memory"' in a)]


def test_36_copies_loads_and_barriers_stay_where_they_are_written() -> None:
    texts = [path.read_text() for path in DEVICE.glob("*.cuh")]
    assert [a for text in texts for a in loose(text)] == []
    assert loose((DEVICE / "ldmatrix.cuh").read_text().replace("asm volatile", "asm"))
    assert loose((DEVICE / "cp_async.cuh").read_text().replace('"memory"', ""))


@pytest.mark.parametrize("activation", ["tanh", "gelu_tanh", "gelu_erf", "silu"])
def test_38_activations_keep_float32s_accuracy(activation: str) -> None:
    """tanh.approx is off by 5e-4; XLA's tanh is not."""
    problem = Matmul(
        64, 64, 32, out_dtype="float32", epilogue=Epilogue(activation=activation)  # type: ignore[arg-type]
    )  # fmt: skip
    arrays = {name: value / 2 for name, value in inputs(problem, 5).items()}
    kernel = test_ampere.compiled(problem, SCHEDULE, SM_80)
    got, _ = test_ampere.execute(kernel, arrays, Mode())
    want = test_ampere.expected(problem, arrays)["out"]
    np.testing.assert_allclose(got["out"], want, rtol=2e-5, atol=1e-6)


# ------------------------------------------------------------------------------ the table
TESTS: dict[int, Callable[..., None]] = {
    **{fault.item: test_the_interpreter_sees for fault in FAULTS.values()},
    16: test_16_partial_sums_need_no_counter_and_no_order_of_blocks,
    17: test_17_kernels_wait_for_the_kernel_before_by_the_streams_order,
    24: test_ampere.test_offsets_beyond_32_bits_are_computed_in_64,
    27: test_ampere.test_an_empty_result_launches_nothing,
    28: test_28_a_warp_tile_is_made_of_whole_ldmatrix_quadruples,
    29: test_29_every_ring_and_stage_leaves_the_swizzled_bits_alone,
    30: test_30_kernels_are_compiled_for_the_exact_architecture,
    31: test_31_and_37_spills_of_forced_occupancy_are_warned_of_and_reported,
    33: test_33_a_name_that_needs_a_header_is_refused,
    34: test_34_the_call_carries_machine_code_not_ptx,
    35: test_35_labels_are_unique_in_every_copy,
    36: test_36_copies_loads_and_barriers_stay_where_they_are_written,
    37: test_31_and_37_spills_of_forced_occupancy_are_warned_of_and_reported,
    38: test_38_activations_keep_float32s_accuracy,
}
OTHERS: dict[range, str] = {
    range(5, 16): "mbarriers, wgmma, bulk copies, clusters, named barriers: tests of hopper",
    range(18, 24): "descriptors and tensor maps: tests of hopper",
    range(32, 33): "cluster-scope mbarrier operations: tests of hopper",
    range(39, 43): "how time is taken: jaxpipe/runtime/timing.py and benchmarks",
}


def test_every_item_is_held_by_a_test_or_is_none_of_this_familys() -> None:
    elsewhere = {item for items in OTHERS for item in items}
    assert set(TESTS).isdisjoint(elsewhere)
    assert set(TESTS) | elsewhere == set(range(1, 43))
    assert {1, 2, 3, 4, 16, 25, 26, 28, 29} == {fault.item for fault in FAULTS.values()}
    assert all(test.__name__.startswith("test_") for test in TESTS.values())
