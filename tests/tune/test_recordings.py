"""Recordings of real CPUs: each of a described machine, replayed as that machine's."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

TUNING = Path(__file__).parents[2] / "tuning"
sys.path.insert(0, str(TUNING))

import compare_samplers  # noqa: E402
import host_sets  # noqa: E402
import recorded_hosts  # noqa: E402

from jaxpipe.keys import problem_from_key  # noqa: E402
from jaxpipe.model import host as host_model  # noqa: E402
from jaxpipe.model.table import table_of  # noqa: E402
from jaxpipe.records import Record  # noqa: E402
from jaxpipe.tune.methods import METHODS  # noqa: E402

FILES = sorted(host_sets.RECORDED.glob("host_*_exhaustive_wall.jsonl.gz"))
SMALL = "matmul 96x128x32x128 nn float32->float32 float32"


def first_record(path: Path) -> Record:
    with gzip.open(path, "rt") as lines:
        return Record.from_json(next(lines))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_recorded_cpu_is_described_under_its_name(path: Path) -> None:
    device = first_record(path).device
    assert path.name == f"host_{device}_exhaustive_wall.jsonl.gz"
    assert recorded_hosts.load()[device].name == device
    assert recorded_hosts.about(device) != device


def test_two_cpus_are_recorded() -> None:
    assert {first_record(path).device for path in FILES} >= {"amd_f25m17_2t", "intel_f6m207_2t"}


def test_a_set_is_asked_for_by_its_name_its_product_or_with_all_others() -> None:
    name = host_sets.set_name(("amd_f25m17_2t", SMALL))
    assert host_sets.device_in(name) == "amd_f25m17_2t"
    assert {"host", name, "host_96x128x32x128"} <= set(compare_samplers.host_names(name))


@pytest.mark.parametrize("name", ["gemm_3090", "filter_a100"])
def test_other_peoples_kernels_are_of_no_recorded_cpu(name: str) -> None:
    assert host_sets.device_in(name) == ""


def test_a_replay_is_of_what_was_recorded_as_its_own_cpu_is_predicted() -> None:
    records = host_sets.host_records()["amd_f25m17_2t", SMALL]
    host = recorded_hosts.load()["amd_f25m17_2t"]
    replay = host_sets.host_replay("small", records, host)
    table = table_of([record.schedule for record in records])
    predicted = host_model.predict_many(problem_from_key(SMALL), table, host)
    assert replay.candidates.log_prior == pytest.approx(np.log(predicted))
    assert len(replay.seconds) == len(records) == 16
    assert replay.best_s == pytest.approx(min(r.measurement.median_s for r in records), rel=0.05)


@pytest.mark.parametrize("name", ["analytical", "bottleneck", "roller"])
def test_every_models_order_serves_host_lists(name: str) -> None:
    records = host_sets.host_records()["amd_f25m17_2t", SMALL]
    candidates = host_sets.host_replay("small", records, recorded_hosts.load()["amd_f25m17_2t"])
    assert METHODS[name].serves(candidates.candidates)


def test_an_unknown_recorded_cpu_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorded_hosts, "PATH", tmp_path / "hosts.json")
    (tmp_path / "hosts.json").write_text(json.dumps({}))
    with pytest.raises(SystemExit, match="records of some_cpu: known are "):
        recorded_hosts.named("some_cpu")


def test_a_host_that_is_kept_comes_back_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = recorded_hosts.load()["intel_f6m207_2t"]
    monkeypatch.setattr(recorded_hosts, "PATH", tmp_path / "hosts.json")
    (tmp_path / "hosts.json").write_text(json.dumps({}))
    recorded_hosts.keep(known, "some words")
    recorded_hosts.keep(known, "")
    assert recorded_hosts.load() == {"intel_f6m207_2t": known}
    assert recorded_hosts.about("intel_f6m207_2t") == "some words"


SCORES = [
    {(r["set"], r["method"]): r["mean"] for r in map(json.loads, path.read_text().splitlines())}
    for path in (TUNING.parent / "benchmarks" / "results" / "samplers_host.jsonl",
                 TUNING.parent / "benchmarks" / "results" / "samplers_host_learnt.jsonl")
]  # fmt: skip
SETS = sorted({name for name, _ in SCORES[0]})
NOISE = 0.01


@pytest.mark.parametrize("scores", SCORES, ids=["model", "learnt"])
@pytest.mark.parametrize("name", SETS)
def test_the_committed_scores_of_the_prior_sampler_are_what_is_promised(
    name: str, scores: dict[tuple[str, str], dict[str, float]]
) -> None:
    prior = scores[name, "prior"]
    assert prior["10"] >= 0.95
    assert prior["50"] >= 0.99
    others = [mean for (on, method), mean in scores.items() if on == name and method != "prior"]
    assert len(others) >= 2
    assert min(prior[k] - mean[k] for mean in others for k in ("10", "50")) >= -NOISE


@pytest.mark.parametrize("name", SETS)
def test_the_prior_is_not_below_a_cold_process_in_the_end(name: str) -> None:
    assert SCORES[0][name, "prior"]["50"] >= SCORES[0][name, "gp"]["50"] - NOISE / 2


def test_both_cpus_are_scored_on_the_same_products() -> None:
    scored = [(host_sets.device_in(name), name.rpartition("_")[2]) for name in SETS]
    products = {product for _, product in scored}
    assert sorted(scored) == sorted(
        (d, p) for d in ("amd_f25m17_2t", "intel_f6m207_2t") for p in products
    )
    assert len(products) == 3
