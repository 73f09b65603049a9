"""The host's schedule by rule: legal everywhere, enough work for every thread, right path."""

from __future__ import annotations

import dataclasses

import pytest

from jaxpipe.legality import check_host
from jaxpipe.model.host_rule import packed_rule, rule
from jaxpipe.problem import Conv2d, Layout, Matmul
from jaxpipe.target import HOST_ISAS, HostDevice

PROBLEMS = [
    Matmul(m, n, k, dtype="float32")
    for m in (0, 1, 5, 16, 128, 1024)
    for n, k in ((1, 1), (768, 768), (384, 1536), (4096, 1024))
]
PROBLEMS += [
    Matmul(128, 128, 32, (96,)),
    Matmul(64, 64, 0),
    Conv2d(1, 56, 56, 64, 64, (3, 3), padding=((1, 1), (1, 1))),
    Conv2d(4, 14, 14, 512, 512, (3, 3)),
    Conv2d(1, 2, 2, 3, 0, (3, 3)),
]


def machine(threads: int, isa: str = "avx512") -> HostDevice:
    return HostDevice("test", isa, threads, 3e9)


@pytest.mark.parametrize("isa", HOST_ISAS)
@pytest.mark.parametrize("threads", [1, 2, 8, 64])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_rule_is_legal_for_every_problem(problem, threads, isa):
    assert check_host(rule(problem, machine(threads, isa))) == ()


@pytest.mark.parametrize("threads", [2, 8, 64])
@pytest.mark.parametrize("n", [768, 3072])
def test_every_thread_finds_several_items(n, threads):
    schedule = rule(Matmul(2048, n, 768), machine(threads))
    blocks = -(-2048 // schedule.block_m) if schedule.block_m else 1
    assert blocks * -(-n // schedule.strip) >= 2 * threads


@pytest.mark.parametrize(("m", "path"), [(1, "stream"), (16, "stream"), (17, "packed")])
def test_few_rows_stream(m, path):
    assert rule(Matmul(m, 768, 768), machine(2)).path == path


def test_a_transposed_rhs_is_packed():
    assert rule(Matmul(1, 768, 768, rhs=Layout(True)), machine(2)).path == "packed"


@pytest.mark.parametrize(("k", "copies"), [(768, False), (2048, True), (3072, True), (2060, False)])
def test_rows_that_fall_into_few_cache_sets_are_copied(k, copies):
    assert rule(Matmul(512, 768, k), machine(2)).copy_lhs is copies


@pytest.mark.parametrize(
    ("problem", "rows"),
    [
        (Matmul(128, 768, 768, dtype="float32"), 12),
        (Matmul(128, 768, 1024, dtype="float32"), 7),
        (Matmul(512, 768, 768, dtype="float32"), 7),
        (Matmul(128, 128, 32, (96,), dtype="float32"), 7),
        (Matmul(512, 768, 1024), 12),
    ],
)
def test_float32_tiles_are_low_where_their_lines_crowd_each_other(problem, rows):
    assert rule(problem, machine(2)).rows == rows


@pytest.mark.parametrize("k", [768, 1024, 3072])
def test_no_tile_is_low_and_no_row_copied_where_l1_has_as_many_ways_as_rows(k):
    roomy = dataclasses.replace(machine(2), l1_bytes=48 << 10)
    schedule = rule(Matmul(512, 768, k, dtype="float32"), roomy)
    assert (schedule.rows, schedule.copy_lhs, schedule.order) == (12, False, "row")


def test_a_convolution_packs_its_filter_once_and_its_rows_fit_the_cache():
    host = dataclasses.replace(machine(2), l2_bytes=1 << 20)
    schedule = rule(Conv2d(4, 14, 14, 512, 512, (3, 3)), host)
    assert schedule.pack == "shared"
    assert schedule.block_m * schedule.block_k * 4 <= host.l2_bytes // 2


@pytest.mark.parametrize(
    "conv",
    [
        Conv2d(4, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
        Conv2d(1, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1))),
        Conv2d(1, 56, 56, 64, 64, (3, 3), padding=((1, 1), (1, 1))),
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [2, 4])
def test_items_of_a_convolution_are_as_many_for_every_thread_and_equal(conv, threads):
    schedule = rule(conv, machine(threads))
    items = -(-conv.n // schedule.strip) * -(-conv.m // schedule.block_m)
    assert items % threads == 0
    last = conv.m - (conv.m - 1) // schedule.block_m * schedule.block_m
    assert last > 0.8 * schedule.block_m


def test_a_strip_of_filters_serves_several_row_tiles():
    schedule = rule(Conv2d(1, 14, 14, 256, 256, (3, 3), padding=((1, 1), (1, 1))), machine(2))
    assert schedule.strip < 256
    assert schedule.block_m >= 5 * schedule.rows


@pytest.mark.parametrize(
    ("dtype", "isa", "pack"),
    [
        ("float32", "avx512", "shared"),
        ("bfloat16", "avx512_bf16", "shared"),
        ("bfloat16", "avx512", "item"),
        ("float16", "avx512_bf16", "item"),
    ],
)
def test_packed_weights_are_widened_where_they_are_used(dtype, isa, pack):
    problem = Matmul(16, 768, 768, dtype=dtype)
    assert packed_rule(problem, machine(2, isa)).pack == pack


@pytest.mark.parametrize(("k", "block_k"), [(768, 0), (2048, 0), (3072, 512), (4096, 512)])
def test_long_float32_sums_take_passes(k, block_k):
    assert rule(Matmul(128, 768, k, dtype="float32"), machine(2)).block_k == block_k
