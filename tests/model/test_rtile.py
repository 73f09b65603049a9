"""ROLLER's rules: alignment, padding, reuse, axis fusion."""

import pytest

from jaxpipe.model.rtile import (
    Alignment,
    RTile,
    fused_axes,
    grown_tiles,
    is_shape_aligned,
    next_aligned,
    reuse_score,
    storage_padding,
    transaction_elements,
)
from jaxpipe.model.workload import workload
from jaxpipe.problem import Matmul

LOAD = workload(Matmul(512, 768, 768))
SIZES = Alignment((16, 32, 48, 64, 128), (16, 32, 48, 64, 128), (32, 64))
TILE = RTile(32, 32, 32)


def test_the_papers_figure_of_bank_padding_comes_out() -> None:
    assert storage_padding(leading=4, read=1, banks=4, width=1) == 1


@pytest.mark.parametrize("leading", [32, 64, 96, 100, 128])
@pytest.mark.parametrize("read", [1, 4, 8, 16])
def test_padded_rows_start_one_piece_further_round_the_banks(leading: int, read: int) -> None:
    padded = leading + storage_padding(leading, read, banks=32, width=1)
    assert padded % 32 == read % 32


def test_a_transaction_is_at_least_one_element() -> None:
    assert [transaction_elements(32, size) for size in (1, 2, 4, 64)] == [32, 16, 8, 1]


@pytest.mark.parametrize(
    ("size", "extent", "epsilon", "aligned"),
    [(64, 768, 0.0, True), (80, 768, 0.0, False), (80, 768, 0.05, True), (64, 33, 0.5, False)],
)
def test_a_size_is_aligned_when_it_pads_little(
    size: int, extent: int, epsilon: float, aligned: bool
) -> None:
    assert is_shape_aligned(size, extent, epsilon) == aligned


def test_growing_skips_sizes_that_pad_too_much() -> None:
    grown = next_aligned(TILE, "m", LOAD, SIZES, 0.0)
    assert grown == RTile(64, 32, 32)  # 48 does not divide 512


def test_growing_ends_at_the_largest_aligned_size() -> None:
    assert next_aligned(RTile(128, 32, 32), "m", LOAD, SIZES, 0.0) is None


def test_reuse_is_traffic_saved_a_byte_of_footprint() -> None:
    grown = TILE.with_size("m", 64)
    saved = TILE.traffic_bytes(LOAD) - grown.traffic_bytes(LOAD)
    added = grown.footprint_bytes(LOAD) - TILE.footprint_bytes(LOAD)
    assert reuse_score(TILE, grown, LOAD) == pytest.approx(saved / added)


def test_a_deeper_tile_saves_no_traffic() -> None:
    assert reuse_score(TILE, TILE.with_size("k", 64), LOAD) == 0.0


def test_growth_prefers_the_short_side() -> None:
    flat = RTile(16, 64, 32)
    assert grown_tiles(flat, LOAD, SIZES, 0.0)[0] == flat.with_size("m", 32)


def test_traffic_of_the_papers_example_follows_from_reuse() -> None:
    load = workload(Matmul(64, 64, 64, dtype="float32"))
    one, four = (RTile(s, s, 4).traffic_bytes(load) for s in (1, 4))
    results = 64 * 64 * 4
    assert (one - results) / (four - results) == 4.0


@pytest.mark.parametrize(
    ("extents", "tensors", "groups"),
    [
        ([17, 11, 3], [[0, 1, 2], [0, 1, 2]], [[0, 1, 2]]),
        ([8, 512, 768, 64], [[0, 1, 3], [0, 3, 2], [0, 1, 2]], [[0], [1], [2], [3]]),
        ([8, 512, 768, 64], [[0, 1, 3], [3, 2], [0, 1, 2]], [[0, 1], [2], [3]]),
        ([4, 14, 14, 32, 3, 3, 16], [[0, 1, 2, 4, 5, 6], [4, 5, 6, 3], [0, 1, 2, 3]],
         [[0, 1, 2], [3], [4, 5, 6]]),
        ([], [], []),
    ],
    ids=["element-wise", "batched rhs", "shared rhs folds the batch", "convolution", "scalar"],
)  # fmt: skip
def test_axes_fuse_that_every_tensor_has_side_by_side_or_not_at_all(
    extents: list[int], tensors: list[list[int]], groups: list[list[int]]
) -> None:
    assert fused_axes(extents, tensors) == groups
