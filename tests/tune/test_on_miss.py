"""JAXPIPE_ON_MISS=tune from the product to the record: a real search in a child process."""

import jax
import jax.numpy as jnp
import pytest

import jaxpipe
from jaxpipe import tuned
from jaxpipe.problem import Matmul
from jaxpipe.target import host_device
from jaxpipe.tune.ledger import Ledger, default_path

PROBLEM = Matmul(48, 64, 32, dtype="float32")
TRIALS = 2


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    monkeypatch.setenv("JAXPIPE_MISS_TRIALS", str(TRIALS))


def lowered():
    """Executor, schedule and source of a new trace of the product."""
    x, w = jnp.ones((48, 32)), jnp.ones((32, 64))
    with jaxpipe.coverage() as ledger:
        jax.jit(lambda x, w: jaxpipe.dot(x, w, implementation="host")).lower(x, w)
    ((site, _),) = ledger.rows()
    return site


def test_a_miss_is_tuned_once_and_filed(capfd):
    first = lowered()
    name = host_device().name
    filed = tuned.Table.load(tuned.user_path(name)).exact(PROBLEM, "host", name)
    assert (first.source, first.schedule) == ("tuned", str(filed.schedule))
    assert filed.measurement.baseline_s, "XLA is measured beside the winner"
    assert "JAXPIPE_ON_MISS=tune: matmul 48x64x32" in capfd.readouterr().err
    finals = len(Ledger(default_path(name)).read()) - TRIALS
    assert 1 <= finals <= TRIALS + 1, "finalists, and what would serve untuned"
    assert lowered() == first
    assert "JAXPIPE_ON_MISS" not in capfd.readouterr().err
