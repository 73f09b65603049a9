"""The tables of docs/host.md: which rows count, and what is computed of them."""

from __future__ import annotations

import pytest

from benchmarks import host_report


def row(case: str = "16x8x8", ours: float = 1e-6, **changed: object) -> dict[str, object]:
    return {
        "device": "a CPU", "case": case, "dtype": "float32", "variant": "plain", "threads": 2,
        "group": "gemm",
        "clock": "wall", "is_quiet": True, "flops": 2000, "peak_flops": 4e9,
        "seconds": {"xla": [2e-6, 2e-6, 2e-6], "jaxpipe": [ours] * 3}, **changed,
    }  # fmt: skip


def test_the_last_quiet_row_of_a_case_counts() -> None:
    first, second, busy = row(ours=4e-6), row(), row(ours=9e-6, is_quiet=False)
    assert host_report.latest([first, second, busy]) == [second]


def test_processor_time_counts_on_one_core_only() -> None:
    one = row(threads=1, clock="processor")
    assert host_report.latest([one, row(clock="processor")]) == [one]


def test_the_summary_has_the_mean_and_the_extremes() -> None:
    table = host_report.summary([row(), row("128x8x8", ours=0.5e-6)])
    assert "| a CPU | float32 | products, plain | 2 | 2.83 | 2.00 | 4.00 |" in table


def test_each_cpu_has_rows_of_its_own() -> None:
    rows = [row(), row(device="another", ours=0.5e-6)]
    assert host_report.latest(rows) == rows
    table = host_report.summary(rows)
    assert "| a CPU | float32 | products, plain | 1 | 2.00" in table
    assert "| another | float32 | products, plain | 1 | 4.00" in table


def test_a_product_line_takes_other_libraries_from_any_variant() -> None:
    packed = row(variant="plain prepacked")
    packed["seconds"] = {**packed["seconds"], "numpy": [1e-6] * 3}  # type: ignore[dict-item]
    line = host_report.products([row(), packed]).splitlines()[-1]
    assert line.startswith("| 16x8x8 | float32 | 1 | 2 | 2 |  | 2.00 [2.00, 2.00] | 0.25, 0.50 |")


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_what_was_not_measured_has_no_rate(library: str) -> None:
    assert host_report.rate(row(), library) is None
