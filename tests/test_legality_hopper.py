"""What the Hopper family refuses, with the numbers in its reasons, and what its blocks hold."""

import re

import pytest

from jaxpipe.epilogue import Epilogue
from jaxpipe.geometry_hopper import Patch, geometry, operand_alignment, patch_of
from jaxpipe.legality import check
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.wgmma import REGISTER_SPLITS

SM_90A = arch("sm_90a")
BASE = GpuSchedule(family="hopper", block_k=64, block_n=128)
SQUARE = Matmul(512, 768, 1024)


def reasons(problem: Problem, text: str = "", target: str = "sm_90a") -> str:
    return "; ".join(check(GpuSchedule.parse(text, BASE), problem, arch(target)))


@pytest.mark.parametrize(
    "text",
    [
        "", "block_n=256", "block_n=256,cluster_m=2", "block_m=256,cluster_n=2", "ping_pong=1",
        "block_m=64,block_n=256,ping_pong=1", "block_m=192,block_n=192,consumers=3,smem_stages=3",
        "block_m=64,block_n=64,consumers=1,smem_stages=8", "split_k=4", "block_k=128,smem_stages=2",
        "block_m=16,block_n=64,consumers=1,swap_operands=1,tma=1", "reg_stages=1,smem_stages=1",
        "tma=0",
    ],
)  # fmt: skip
def test_the_space_of_the_issue_is_legal(text: str) -> None:
    assert reasons(SQUARE, text) == ""


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("consumers=4", "consumers=4: use 1 to 3"),
        ("ping_pong=1,consumers=1,block_m=64", "ping_pong with consumers=1"),
        ("smem_stages=17", "smem_stages=17: use 1 to 16"),
        ("smem_stages=1", "smem_stages=1 with reg_stages=2: .*use smem_stages >= 2"),
        ("reg_stages=3", "reg_stages=3: use 1"),
        ("block_k=32", "block_k=32 of bfloat16 is 64 bytes a row, use 64 or 128"),
        ("block_m=96", "block_m=96 over 2 warpgroups of 64 rows each: use a multiple of 128"),
        ("block_m=512,block_n=64", "block_m=512 .* up to 256"),
        ("block_n=96", "block_n=96 columns of wgmma: use a multiple of 64"),
        ("block_n=320", "block_n=320 columns .* up to 256"),
        ("cluster_m=2,cluster_n=2", "cluster 2x2: use 1x1, 2x1 or 1x2"),
        ("cluster_m=4", "cluster 4x1"),
        ("block_m=256,block_n=256,smem_stages=2", "256 accumulators .* leave 232"),
        ("block_n=256,smem_stages=5", "need 279632 bytes .* sm_90a allows 232448: use at most 4"),
        ("split_k=17", "split_k=17 of 16 k tiles"),
        ("tma=0,cluster_m=2", "cp.async cannot multicast to a cluster of 2"),
        ("block_n=64,cluster_m=2", "half of rhs, whose tile of 64 .MN-major. does not halve"),
        ("persistent_blocks=0", "persistent_blocks=0, split_k=1: each at least 1"),
    ],
)
def test_an_illegal_schedule_is_refused_with_numbers(text: str, match: str) -> None:
    assert re.search(match, reasons(SQUARE, text)), reasons(SQUARE, text)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_targets_without_tma_and_wgmma_take_the_other_family(target: str) -> None:
    assert f"{target} has not both: use family=ampere" in reasons(SQUARE, target=target)


@pytest.mark.parametrize(
    ("problem", "text", "match"),
    [
        (Matmul(64, 64, 64, dtype="float32"), "block_k=32", "precision=float32 forbids it"),
        (Matmul(64, 64, 64, dtype="int8"), "block_k=128", "rhs of int8 is not contiguous along k"),
        (Matmul(64, 64, 64, out_dtype="int32"), "", "f32 sums are stored as"),
        (Matmul(64, 64, 64, out_dtype="float32", epilogue=Epilogue(bias="row", bias_dtype="int8")),
         "", "bias of int8"),
        (Matmul(64, 64, 64, dtype="int8", rhs=Layout(True), epilogue=Epilogue(alpha=0.5)),
         "block_k=128", "int32 results with alpha=0.5"),
        (Matmul(64, 64, 64, dtype="int8", rhs=Layout(True), epilogue=Epilogue(activation="silu")),
         "block_k=128", "int32 results with silu"),
        (Matmul(64, 72, 66), "", "rows of lhs start at multiples of 4 bytes"),
        (Matmul(64, 72, 65), "", "rows of lhs start at multiples of 2 bytes"),
        (Matmul(2**31, 64, 64), "", "extent of 2147483648"),
        (Conv2d(2, 8, 8, 3, 64, (3, 3)), "", "3 and 64 channels of bfloat16"),
        (Conv2d(2, 8, 8, 64, 64, (3, 3)), "swap_operands=1", "convolution is not built"),
        (Conv2d(2, 4, 4, 16, 64, (3, 3)), "swap_operands=1,block_m=32,consumers=1", "not built"),
        (Conv2d(2, 99, 99, 64, 64, (3, 3), (9, 9)), "", r"stride \(9, 9\)"),
        (Conv2d(2, 8, 8, 64, 64, (3, 3)), "split_k=2", "split_k of a convolution"),
    ],
)  # fmt: skip
def test_a_problem_that_hopper_cannot_take_is_refused(
    problem: Problem, text: str, match: str
) -> None:
    assert re.search(match, reasons(problem, text)), reasons(problem, text)


def test_shared_memory_is_that_of_the_research_notes() -> None:
    schedule = GpuSchedule.parse("block_n=256", BASE)
    assert geometry(SQUARE, schedule).shared.total_bytes == 230464


@pytest.mark.parametrize(
    ("problem", "role", "expected"),
    [
        (Matmul(8, 8, 24), "lhs", 16),
        (Matmul(8, 8, 20), "lhs", 8),
        (Matmul(8, 8, 21), "lhs", 2),
        (Matmul(1, 8, 21), "lhs", 16),
        (Matmul(8, 21, 8), "rhs", 2),
        (Matmul(8, 16, 8, batch=(3,), rhs=Layout(batch_strides=(130,))), "rhs", 4),
        (Matmul(8, 16, 8, batch=(1,), rhs=Layout(batch_strides=(130,))), "rhs", 16),
        (Matmul(8, 16, 8, batch=(3,), rhs=Layout(batch_strides=(0,))), "rhs", 16),
    ],
)
def test_alignment_counts_only_pitches_that_are_used(
    problem: Matmul, role: str, expected: int
) -> None:
    assert operand_alignment(problem, role) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("height", "width", "images", "patch"),
    [(56, 56, 8, Patch(8, 8, 1)), (28, 28, 8, Patch(4, 4, 4)), (7, 7, 64, Patch(1, 1, 64)),
     (112, 112, 1, Patch(16, 4, 1))],
)  # fmt: skip
def test_patches_waste_nothing_where_they_can(
    height: int, width: int, images: int, patch: Patch
) -> None:
    conv = Conv2d(images, height, width, 64, 64, (1, 1))
    assert patch_of(conv) == patch
    assert patch_of(conv).waste(conv) == 1.0


def test_registers_of_a_block_fit_those_it_was_launched_with() -> None:
    for (consumers, _), split in REGISTER_SPLITS.items():
        warpgroups = consumers + 1
        launched = 65536 // (128 * warpgroups) // 8 * 8
        assert split.producer + consumers * split.consumer <= warpgroups * launched


def test_an_epilogue_of_another_dtype_does_not_change_the_ring() -> None:
    wide = Matmul(512, 768, 1024, out_dtype="float32", epilogue=Epilogue(residual=True))
    assert geometry(wide, BASE).shared == geometry(SQUARE, BASE).shared
