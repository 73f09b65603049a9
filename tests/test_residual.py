"""What earlier measurements teach about a model's errors."""

import dataclasses

import numpy as np
import pytest

from jaxpipe.errors import RecordError
from jaxpipe.model import host as host_model
from jaxpipe.problem import Matmul
from jaxpipe.records import Measurement, Record
from jaxpipe.residual import Residual, fit, shipped
from jaxpipe.space import host_space
from jaxpipe.target import HostDevice

HOST = HostDevice("test_cpu", "avx512", 2, 3e9)


def truth(space):
    """The model is wrong about two switches: order and copying."""
    t = space.columns
    wrong = 0.4 * (t["order"] == "row") + 0.25 * t["copy_lhs"] * (t["strip"] > 64)
    return host_model.predict_many(space.problem, space.table, HOST) * np.exp(wrong)


def records(problem, count=10_000):
    space = host_space(problem, HOST)
    seconds, predicted = truth(space), host_model.predict_many(problem, space.table, HOST)
    rows = np.random.default_rng(0).permutation(len(space))[:count]
    return [
        Record(problem.key, "host", HOST.name, space.schedule(int(r)),
               Measurement("ok", (float(seconds[r]),)), float(predicted[r]))
        for r in rows
    ]  # fmt: skip


def product(m, n=768, k=768):
    return Matmul(m, n, k, dtype="float32")


def fitted(*problems, count=10_000):
    rows = [r for p in problems for r in records(p, count)]
    return fit(rows, {HOST.name: HOST}, "host")


def rank_error(problem, residual=None):
    """How much slower than the best the first pick is, with or without the correction."""
    space = host_space(problem, HOST)
    log = np.log(host_model.predict_many(problem, space.table, HOST))
    if residual is not None:
        log = log + residual.correction(problem, space.table, HOST)
    seconds = truth(space)
    return float(np.corrcoef(log, np.log(seconds))[0, 1])


@pytest.mark.parametrize("m", [128, 1024])
def test_an_untuned_shape_gains_from_tuned_ones(m):
    residual = fitted(product(256), product(512), product(2048))
    assert rank_error(product(m), residual) > max(0.95, rank_error(product(m)))


def test_fifty_measurements_of_one_shape_already_help():
    residual = fitted(product(256), count=50)
    assert rank_error(product(512), residual) > rank_error(product(512))


def test_a_model_that_is_slow_everywhere_teaches_nothing():
    rows = records(product(256))
    same = [
        dataclasses.replace(r, measurement=Measurement("ok", (3 * r.predicted_s,))) for r in rows
    ]
    space = host_space(product(256), HOST)
    residual = fit(same, {HOST.name: HOST}, "host")
    np.testing.assert_allclose(residual.correction(product(256), space.table, HOST), 0, atol=1e-9)


def test_what_an_older_model_predicted_does_not_matter():
    rows = records(product(256), 200)
    old = [
        dataclasses.replace(r, predicted_s=r.predicted_s * 2 ** (i % 3)) for i, r in enumerate(rows)
    ]
    old[0] = dataclasses.replace(old[0], predicted_s=0.0)
    fits = [fit(given, {HOST.name: HOST}, "host") for given in (rows, old)]
    assert fits[0].dumps() == fits[1].dumps()


def test_a_table_survives_its_text():
    residual = fitted(product(256))
    space = host_space(product(512), HOST)
    again = Residual.loads(residual.dumps())
    a, b = (r.correction(product(512), space.table, HOST) for r in (residual, again))
    np.testing.assert_allclose(a, b, atol=1e-3)


def test_too_few_or_foreign_records_give_no_model():
    assert fit(records(product(256), 5), {HOST.name: HOST}, "host") is None
    assert fit(records(product(256)), {}, "host") is None
    assert fit(records(product(256)), {HOST.name: HOST}, "cuda") is None


@pytest.mark.parametrize("text", ["", "{}", '{"format": 9}'])
def test_other_text_is_refused(text):
    with pytest.raises(RecordError, match="no residual model"):
        Residual.loads(text)


def test_the_shipped_host_model_corrects_by_finite_amounts():
    residual = shipped("host")
    space = host_space(product(300), HOST)
    correction = residual.correction(product(300), space.table, HOST)
    assert residual.examples > 1000
    assert 0 < np.ptp(correction) <= 3.0


def test_there_is_no_model_for_an_executor_without_records():
    assert shipped("nobody") is None
