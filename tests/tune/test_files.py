"""Ledgers, exchange formats, storages, the command line."""

import json
import os
import pathlib
import subprocess
import sys

import optuna
import pytest

from jaxpipe import cli, tuned
from jaxpipe.errors import RecordError, TuningError
from jaxpipe.tune import exchange
from jaxpipe.tune.arguments import epilogue_of
from jaxpipe.tune.ledger import Ledger
from jaxpipe.tune.storage import open_storage, patiently
from tests.test_tuned import record

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))


def test_a_ledger_keeps_every_record_in_order(tmp_path):
    ledger = Ledger(tmp_path / "a" / "l.jsonl")
    ledger.append([record(1), record(2)])
    ledger.append([record(1)])
    assert ledger.read() == [record(1), record(2), record(1)]


def test_a_torn_line_is_skipped_and_fenced_off(tmp_path):
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.append([record(1)])
    with open(ledger.path, "a") as stream:
        stream.write(record(2).to_json()[:50])
    ledger.append([record(3)])
    with pytest.warns(UserWarning, match="skipped 1 lines"):
        assert ledger.read() == [record(1), record(3)]


def test_a_missing_ledger_is_empty(tmp_path):
    assert Ledger(tmp_path / "none.jsonl").read() == []


def test_t4_holds_every_measurement_and_leads_back():
    text = exchange.to_t4([record(1), record(2)])
    assert exchange.from_t4(text) == [record(1), record(2)]
    result = json.loads(text)["results"][0]
    assert result["invalidity"] == "correct"
    assert result["measurements"][0] == {
        "name": "time",
        "value": pytest.approx(1.0),
        "unit": "milliseconds",
    }


def test_t4_of_another_tool_is_refused_with_the_reason():
    with pytest.raises(RecordError, match="results of other tools name no problem"):
        exchange.from_t4('{"results": [{"configuration": {}}]}')


@pytest.mark.parametrize("url", ["", "{}/s.log", "journal:{}/j", "sqlite:///{}/s.db"])
def test_every_storage_holds_a_study(tmp_path, url):
    study = optuna.create_study(storage=open_storage(url.format(tmp_path)))
    study.tell(study.ask(), 1.0)
    assert study.best_value == 1.0


@pytest.mark.parametrize(
    ("url", "match"),
    [("redis://x", "use a journal file"), ("postgresql://t:secret@127.0.0.1:1/x", "cannot open")],
)
def test_a_storage_that_cannot_be_used_is_refused_without_its_password(url, match):
    with pytest.raises(TuningError, match=match) as error:
        open_storage(url)
    assert "secret" not in str(error.value)


def test_a_database_that_stays_away_ends_with_advice():
    def away():
        raise optuna.exceptions.StorageInternalError("gone")

    with pytest.raises(TuningError, match="what was measured is in the ledger"):
        patiently(away, limit_s=0.1)


@pytest.mark.parametrize(
    "words", ["bias+gelu_tanh", "row_bias+relu+residual", "alpha=0.5+silu", ""]
)
def test_epilogue_words_are_those_of_the_key(words):
    described = epilogue_of(words).describe()
    assert set(filter(None, described.split("+"))) == set(filter(None, words.split("+")))


def test_an_unknown_epilogue_word_is_refused():
    with pytest.raises(TuningError, match=r"'gelu'.*gelu_tanh"):
        epilogue_of("gelu")


def test_winners_of_several_files_merge_into_one(tmp_path, capsys):
    tuned.update(tmp_path / "a.json", tuned.Table.of([record(1)]))
    Ledger(tmp_path / "b.jsonl").append([record(2), record(1, seconds=1e-4)])
    out = tmp_path / "out.json"
    assert (
        cli.main(
            [
                "tune",
                "export",
                str(tmp_path / "a.json"),
                str(tmp_path / "b.jsonl"),
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert len(tuned.Table.load(out)) == 2
    assert "2 winners" in capsys.readouterr().out


def test_an_exported_ledger_is_imported_into_the_users_file(tmp_path):
    Ledger(tmp_path / "l.jsonl").append([record(1), record(2)])
    out = str(tmp_path / "t4.json")
    cli.main(["tune", "export", str(tmp_path / "l.jsonl"), "--out", out, "--format", "t4"])
    cli.main(["tune", "import", out])
    assert len(tuned.Table.load(tuned.user_path("zen"))) == 2


@pytest.mark.slow
def test_tune_matmul_on_the_host_serves_a_process_without_optuna(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAXPIPE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "tuning/tune_matmul.py", "64", "128", "96", "--trials", "6"]
    subprocess.run(command, env=env, cwd=ROOT, check=True)
    check = (
        "import sys; sys.modules['optuna'] = None\n"
        "import jax.numpy as jnp, jaxpipe\n"
        "with jaxpipe.coverage() as c:\n"
        "    jaxpipe.dot(jnp.ones((64, 96)), jnp.ones((96, 128)), implementation='host')\n"
        "print([s.source for s, _ in c.rows()])\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", check], env=env, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert "tuned" in shown
