"""Drawn kernels of both families are right, free of hazards, and keep what their swizzle promises.

benchmarks/interpreted_sweep.py runs every pair in every adversarial mode and commits the rows; the
slow test here runs each pair once, the modes in turn.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable
from dataclasses import asdict

import pytest

from benchmarks.interpreted_sweep import COUNTS, Pair, run
from jaxpipe.geometry_hopper import Geometry, geometry
from jaxpipe.problem import Conv2d
from jaxpipe.ptx.run import ADVERSARIAL_MODES
from tests.codegen.hopper_points import points
from tests.drawn import draw_sm80

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks/results"
TURN = 25


@functools.cache
def rows(target: str) -> list[dict[str, object]]:
    text = (RESULTS / f"interpreted_{target.replace('_', '')}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, COUNTS["sm_80"], TURN))
def test_drawn_pairs_of_sm_80_are_right(first: int) -> None:
    for seed in range(first, first + TURN):
        mode = ADVERSARIAL_MODES[seed % len(ADVERSARIAL_MODES)]
        pair = run(seed, *draw_sm80(seed), "sm_80", (mode,))
        assert pair.is_right, pair


@pytest.mark.parametrize("target", sorted(COUNTS))
def test_the_committed_rows_are_all_right(target: str) -> None:
    totals, *pairs = rows(target)
    assert totals["pairs"] == totals["right"] == len(pairs) == COUNTS[target]
    assert totals["hazards"] == 0
    assert all(Pair(**pair).is_right for pair in pairs)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 7])
def test_a_committed_row_comes_out_again(seed: int) -> None:
    row = next(r for r in rows("sm_80")[1:] if r["seed"] == seed)
    found = asdict(run(seed, *draw_sm80(seed), "sm_80", ADVERSARIAL_MODES))
    assert {k: v for k, v in found.items() if k != "error"} == {
        k: v for k, v in row.items() if k != "error"
    }


# What the draw of the Hopper space must hold for its 300 points to mean something.
COVERED: dict[str, Callable[[Geometry], bool]] = {
    "fewer k tiles than stages": lambda g: 0 < g.k_tiles_per_split < g.schedule.smem_stages,
    "as many k tiles as stages": lambda g: g.k_tiles_per_split == g.schedule.smem_stages,
    "k tiles no multiple of the stages": lambda g: (
        g.k_tiles_per_split > g.schedule.smem_stages
        and g.k_tiles_per_split % g.schedule.smem_stages != 0
    ),
    "more than twice the stages": lambda g: g.k_tiles_per_split > 2 * g.schedule.smem_stages,
    "no k tile": lambda g: g.k_tiles == 0,
    "one tile a block": lambda g: g.total_tiles * g.cluster == g.blocks,
    "many tiles a block": lambda g: g.total_tiles * g.cluster > 2 * g.blocks,
    "an odd number of tiles, ping-pong": lambda g: (
        g.schedule.ping_pong and g.total_tiles % 2 == 1 and g.total_tiles > 1
    ),
    "an odd number of tiles along m, clusters": lambda g: (
        g.schedule.cluster_m == 2 and g.tiles_m % 2 == 1
    ),
    "an odd number of tiles along n, clusters": lambda g: (
        g.schedule.cluster_n == 2 and g.tiles_n % 2 == 1
    ),
    "split k": lambda g: g.schedule.split_k > 1,
    "swapped operands": lambda g: g.schedule.swap_operands,
    "copies without TMA": lambda g: g.copy == "cp_async",
    "a convolution": lambda g: isinstance(g.problem, Conv2d),
}


@functools.cache
def drawn_geometries() -> tuple[Geometry, ...]:
    return tuple(geometry(p.problem, p.schedule) for p in points(COUNTS["sm_90a"]))


@pytest.mark.parametrize("what", COVERED)
def test_the_draw_of_the_hopper_space_covers(what: str) -> None:
    assert sum(map(COVERED[what], drawn_geometries())) >= 3
