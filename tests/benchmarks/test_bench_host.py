"""The host benchmark's own arithmetic: pairing, dropped rounds, the list of shapes, exit codes."""

from __future__ import annotations

import os

import pytest

from benchmarks import bench_host, host_cases, paired
from jaxpipe.epilogue import Epilogue


def busy(monkeypatch: pytest.MonkeyPatch, cores: list[float]) -> None:
    """Every round sees the next of `cores`, then a quiet machine."""
    left = iter(cores)

    class Load:
        def cores(self) -> float:
            return next(left, 0.0)

    monkeypatch.setattr(paired, "ForeignLoad", Load)


FUNCTIONS = {"xla": lambda: None, "jaxpipe": lambda: None}
SHORT = paired.RoundPlan(rounds=4, block_s=1e-4, limit_s=5.0)


def test_disturbed_rounds_are_dropped(monkeypatch):
    busy(monkeypatch, [0.0, 0.9, 0.9])
    rounds = paired.measure(FUNCTIONS, SHORT)
    assert (rounds.dropped, rounds.is_quiet, len(rounds.seconds["xla"])) == (2, True, 4)


def test_a_machine_that_never_is_quiet_is_reported(monkeypatch):
    busy(monkeypatch, [0.9] * 1_000_000)
    rounds = paired.measure(FUNCTIONS, paired.RoundPlan(4, 1e-4, 0.05))
    assert not rounds.is_quiet
    assert len(rounds.seconds["xla"]) == len(rounds.seconds["jaxpipe"]) > 0


def test_a_ratio_above_one_means_that_the_candidate_is_faster():
    rounds = paired.Rounds({"xla": [3.0, 4.0], "jaxpipe": [1.5, 1.0]})
    assert rounds.ratios("xla", "jaxpipe") == [2.0, 4.0]


def test_the_list_holds_twenty_two_shapes_and_quick_six_of_them():
    assert (len(host_cases.LIST), len(host_cases.QUICK)) == (22, 6)


@pytest.mark.parametrize("epilogue", [Epilogue(), host_cases.FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize("dtype", bench_host.DTYPES)
@pytest.mark.parametrize("case", [host_cases.QUICK[1], host_cases.CONVS[5]], ids=lambda c: c.name)
def test_ours_and_xla_compute_the_same(case, dtype, epilogue):
    problem = case.build(dtype, epilogue)
    arrays = host_cases.operands(problem)
    schedule = bench_host.rule("default")(problem)
    got = host_cases.our_function(problem, schedule)(*arrays)
    assert host_cases.error(problem, got, arrays) <= 1.0


def test_a_wrong_result_is_seen():
    problem = host_cases.QUICK[1].build("float32", Epilogue())
    arrays = host_cases.operands(problem)
    wrong = host_cases.xla_function(problem)(*arrays).at[3, 5].add(1e-2)
    assert host_cases.error(problem, wrong, arrays) > 1.0


def test_one_case_runs_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_host, "bind", lambda threads: len(os.sched_getaffinity(0)))
    rows = tmp_path / "rows.jsonl"
    args = ["--shape", "16x768x768", "--dtype", "bfloat16", "--rounds", "2", "--no-others"]
    assert bench_host.main([*args, "--limit", "0.5", "--json", str(rows)]) == 0
    assert "geomean of bfloat16" in capsys.readouterr().out
    assert '"kind": "host"' in rows.read_text()
