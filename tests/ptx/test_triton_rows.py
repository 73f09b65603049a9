"""The committed rows of Triton's kernels are those of the cases that there are, without a fault."""

import json
import pathlib

from tests.ptx.triton_cases import BY_NAME, FINDINGS

ROWS = pathlib.Path(__file__).parents[2] / "benchmarks/results/triton_interpreted.jsonl"
FOUND = {row["name"]: row for row in map(json.loads, ROWS.read_text().splitlines())}


def test_every_kernel_has_a_row() -> None:
    assert FOUND.keys() == BY_NAME.keys()


def test_only_the_listed_kernels_have_a_hazard() -> None:
    assert {name: row["hazards"] for name, row in FOUND.items() if row["hazards"]} == {
        name: [kind] for name, kind in FINDINGS.items()
    }


def test_all_other_numbers_are_within_tolerance() -> None:
    right = [row["max_error_over_tolerance"] for n, row in FOUND.items() if n not in FINDINGS]
    assert len(right) >= 150
    assert max(right) <= 1
