"""The committed figures of the models: reproduced, and above what the project promises."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import model_report, ranks
from jaxpipe.model import host_rule
from jaxpipe.problem import Matmul
from jaxpipe.records import Measurement, Record
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import host_device

COMMITTED = [json.loads(x) for x in (model_report.RESULTS / "model.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def figure_10() -> list[model_report.Row]:
    return list(model_report.figure_10())


def test_predicted_gains_rank_as_in_alcops_figure_10(figure_10: list[model_report.Row]) -> None:
    summary = figure_10[-1]
    assert summary["operators"] == 12
    assert summary["spearman_full"] >= 0.7
    assert summary["spearman_single_level"] >= 0.7
    assert min(summary["spearman_full_with_any_two_conv1x1"]) >= 0.7


def test_register_stages_gain_where_the_paper_says_they_do(
    figure_10: list[model_report.Row],
) -> None:
    gains = {r["operator"]: r["predicted"] for r in figure_10[:-1]}
    more = {name: g["full"] / g["single_level"] for name, g in gains.items()}
    assert more["MM_RN50_FC"] > 1.1
    assert more["MM_BERT_FC2"] > 1.1
    assert more["BMM_GPT2_QK"] < 1.02


def test_the_committed_figure_10_is_what_the_script_gives(
    figure_10: list[model_report.Row],
) -> None:
    kept = [r for r in COMMITTED if r["table"].startswith("figure10")]
    for row, found in zip(kept, figure_10, strict=True):
        assert {k: row[k] for k in found} == json.loads(json.dumps(found))


@pytest.mark.parametrize("device", ["amd_f25m17_2t", "intel_f6m207_2t"])
@pytest.mark.parametrize(("kept", "problems"), [("all", 8), ("held out", 6)])
def test_the_host_models_first_schedules_are_nearly_the_best(
    device: str, kept: str, problems: int
) -> None:
    summaries = [r for r in COMMITTED if r["table"] == "best_in_k_summary"]
    (found,) = [r for r in summaries if (r["device"], r["kept"]) == (device, kept)]
    assert found["problems"] >= problems
    assert found["analytical"]["top_10"] >= 0.98
    assert found["analytical"]["top_50"] >= 0.99


def test_every_committed_row_names_its_command() -> None:
    assert {r["command"] for r in COMMITTED} == {model_report.COMMAND}


def test_ranks_share_ties_and_correlate() -> None:
    values = np.array([3.0, 1.0, 1.0, 2.0])
    assert list(ranks.ranks(values)) == [4.0, 1.5, 1.5, 3.0]
    assert ranks.spearman(values, values) == pytest.approx(1.0)
    assert ranks.spearman(values, -values) == pytest.approx(-1.0)
    assert ranks.spearman(values, np.ones(4)) == 0.0


def test_scores_are_shares_of_the_best_in_the_models_order() -> None:
    seconds = np.array([4.0, 2.0, 1.0])
    scores = model_report.scores(np.array([1.0, 2.0, 3.0]), seconds)
    assert (scores["top_1"], scores["top_10"]) == (0.25, 1.0)


def test_equal_predictions_score_as_a_random_order() -> None:
    seconds = np.arange(1.0, 11.0)
    scores = model_report.scores(np.ones(10), seconds)
    assert 0.15 < scores["top_1"] < 0.5


def measured(seconds: float) -> Measurement:
    return Measurement("ok", (seconds,) * 3)


def test_recorded_spaces_are_read_by_device_clock_and_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    key, versions = "matmul 512x768x768 nn float32->float32 float32", (("clock", "cpu"),)
    records = [
        Record(key, "host", host_device().name, HostSchedule(strip=strip), timed, versions=versions)
        for strip, timed in zip((32, 64, 128), map(measured, (1.0, 2.0, 3.0)), strict=True)
    ]
    with gzip.open(path, "wt") as lines:
        lines.writelines(r.to_json() + "\n" for r in records)
    rows = list(model_report.best_in_k([path]))
    assert [r["table"] for r in rows] == ["best_in_k", *["best_in_k_summary"] * 2]
    assert (rows[0]["schedules"], rows[0]["clock"], rows[1]["problems"]) == (3, "cpu", 1)


def test_the_rules_pick_is_scored_where_it_was_recorded() -> None:
    host, problem = host_device(), Matmul(512, 768, 768, dtype="float32")
    picks = host_rule.rule(problem, host), HostSchedule(strip=32, stages=1)
    records = [Record(problem.key, "host", host.name, s, measured(1.0)) for s in picks]
    share = model_report.rule_share
    assert share(problem, host, records, np.array([2.0, 1.0])) == 0.5
    assert share(problem, host, records[1:], np.array([1.0])) is None


def test_blocks_in_which_the_baseline_was_disturbed_do_not_count() -> None:
    m = Measurement("ok", (1.0, 1.0, 5.0, 1.0), (2.0, 2.0, 9.0, 2.0))
    assert model_report.quiet_s(Record("x", "host", "h", HostSchedule(), m)) == 1.0
