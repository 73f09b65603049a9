"""Tables of winners: look up, merge, save under contention, and what an untuned problem does."""

import dataclasses
import multiprocessing
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpipe import tuned
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import RecordError
from jaxpipe.problem import Conv2d, Matmul
from jaxpipe.records import Measurement, Record
from jaxpipe.schedule import GpuSchedule, HostSchedule


def record(m=512, seconds=1e-3, rows=6, device="zen", **problem):
    problem = Matmul(m, 768, 768, dtype="float32", **problem)
    measured = Measurement("ok", (seconds, seconds * 1.1, seconds))
    return Record(problem.key, "host", device, HostSchedule(rows=rows), measured)


def problem_of(row):
    return tuned.problem_from_key(row.problem)


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "shipped")


def test_the_faster_record_of_a_problem_stays():
    table = tuned.Table.of([record(seconds=2e-3), record(seconds=1e-3, rows=4)])
    assert [r.schedule.rows for r in table.rows.values()] == [4]


def test_failures_never_become_winners():
    failed = dataclasses.replace(record(), measurement=Measurement("wrong_result", reason="nan"))
    assert len(tuned.Table.of([failed])) == 0


ROWS = st.lists(
    st.builds(record, st.sampled_from([64, 128]), st.sampled_from([1e-3, 2e-3]), st.integers(1, 4))
)


@given(ROWS, ROWS, ROWS)
def test_merging_is_commutative_associative_and_idempotent(a, b, c):
    x, y, z = map(tuned.Table.of, (a, b, c))
    assert (x | y).rows == (y | x).rows
    assert ((x | y) | z).rows == (x | (y | z)).rows
    assert (x | x).rows == x.rows


@given(ROWS)
def test_a_table_survives_its_text(rows):
    table = tuned.Table.of(rows)
    assert tuned.Table.loads(table.dumps()).rows == table.rows


def test_a_gpu_record_survives_its_text():
    schedule = GpuSchedule(smem_stages=5, swizzle=False)
    row = dataclasses.replace(record(), executor="cuda", device="h200", schedule=schedule)
    assert tuned.Table.loads(tuned.Table.of([row]).dumps()).rows[tuned.key_of(row)] == row


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "no table"),
        ("[]", "no table"),
        ('{"format":99,"records":[]}', "format 99"),
        ('{"format":1,"records":[{"problem":3}]}', "not a jaxpipe record"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path, text, match):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=match):
        tuned.Table.load(path)


def test_the_exact_record_comes_before_nearer_layers_and_nearest_shapes():
    table = tuned.Table.of([record(512), record(256), record(2048)])
    hits = table.hits(problem_of(record(512)), "host", "zen")
    assert [problem_of(h.record).m for h in hits] == [512, 256, 2048]
    assert hits[0].is_exact
    assert not hits[1].is_exact


@pytest.mark.parametrize(
    "other",
    [
        Matmul(512, 768, 768, dtype="bfloat16"),
        Matmul(512, 768, 768, dtype="float32", precision="tf32"),
        Matmul(512 * 64, 768, 768, dtype="float32"),
        Conv2d(1, 512, 1, 768, 768, (1, 1), dtype="float32"),
        Matmul(0, 768, 768, dtype="float32"),
    ],
    ids=lambda p: p.key,
)
def test_a_record_does_not_serve_a_problem_of_another_class(other):
    assert tuned.Table.of([record(512)]).hits(other, "host", "zen") == []


def test_another_device_or_executor_has_no_hits():
    table = tuned.Table.of([record(512)])
    assert table.hits(problem_of(record(512)), "host", "other") == []
    assert table.hits(problem_of(record(512)), "cuda", "zen") == []


def test_an_epilogue_makes_a_neighbour_not_an_exact_record():
    other = Matmul(512, 768, 768, dtype="float32", epilogue=Epilogue(activation="relu"))
    (hit,) = tuned.Table.of([record(512)]).hits(other, "host", "zen")
    assert 1 < hit.octaves < 1.1


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_the_distance_of_shapes_is_symmetric_and_zero_only_for_equals(m, n):
    a, b = Matmul(m, 64, 64), Matmul(n, 64, 64)
    assert tuned.octaves_between(a, b) == tuned.octaves_between(b, a)
    assert (tuned.octaves_between(a, b) == 0) == (m == n)


# ---------------------------------------------------------------------------------- layers


def test_layers_are_asked_in_order_context_setting_user_shipped(tmp_path, monkeypatch):
    one = problem_of(record())
    tuned.update(tuned.shipped_path("zen"), tuned.Table.of([record(rows=1)]))
    tuned.update(tuned.user_path("zen"), tuned.Table.of([record(rows=2, seconds=9e-3)]))
    seen = [tuned.lookup(one, "host", "zen")[0].record.schedule.rows]
    extra = tmp_path / "extra.json"
    tuned.update(extra, tuned.Table.of([record(rows=3, seconds=9e-3)]))
    monkeypatch.setenv("JAXPIPE_TUNED", str(extra))
    seen.append(tuned.lookup(one, "host", "zen")[0].record.schedule.rows)
    with tuned.using(tuned.Table.of([record(rows=4, seconds=9e-3)])):
        seen.append(tuned.lookup(one, "host", "zen")[0].record.schedule.rows)
    seen.append(tuned.lookup(one, "host", "zen")[0].record.schedule.rows)
    assert seen == [2, 3, 4, 3]


def test_a_changed_user_file_is_read_again():
    one = problem_of(record())
    tuned.update(tuned.user_path("zen"), tuned.Table.of([record(seconds=2e-3, rows=2)]))
    assert tuned.lookup(one, "host", "zen")[0].record.schedule.rows == 2
    tuned.update(tuned.user_path("zen"), tuned.Table.of([record(seconds=1e-3, rows=11)]))
    assert tuned.lookup(one, "host", "zen")[0].record.schedule.rows == 11


def test_a_broken_user_file_is_said_and_passed_over():
    path = tuned.user_path("zen")
    path.parent.mkdir(parents=True)
    path.write_text("not json")
    with pytest.warns(RuntimeWarning, match="going on without it"):
        assert tuned.lookup(problem_of(record()), "host", "zen") == []


def test_a_broken_file_is_kept_aside_when_it_is_updated(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("not json")
    with pytest.warns(RuntimeWarning, match="broken"):
        assert len(tuned.update(path, tuned.Table.of([record()]))) == 1
    assert (tmp_path / "t.json.broken").read_text() == "not json"


def test_a_given_table_comes_before_the_context_and_is_named():
    with tuned.using(tuned.Table.of([record(rows=5)])):
        hits = tuned.lookup(problem_of(record()), "host", "zen", tuned.Table.of([record(rows=3)]))
    assert [(hit.layer, hit.record.schedule.rows) for hit in hits] == [
        ("options", 3),
        ("context", 5),
    ]


# ---------------------------------------------------------------------------------- many writers


def _write_many(path, first):
    for m in range(first, first + 25):
        tuned.update(path, tuned.Table.of([record(m)]))


def test_four_writers_on_one_file_lose_nothing(tmp_path):
    path = tmp_path / "t.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, 1 + 25 * i)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {problem_of(r).m for r in tuned.Table.load(path).rows.values()} == set(range(1, 101))


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "t.json"
    tuned.update(path, tuned.Table.of([record(7)]))
    writer = multiprocessing.get_context("fork").Process(target=_write_many, args=(path, 100))
    writer.start()
    time.sleep(0.05)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    assert 7 in {problem_of(r).m for r in tuned.Table.load(path).rows.values()}
    assert len(tuned.update(path, tuned.Table.of([record(8)]))) >= 2
