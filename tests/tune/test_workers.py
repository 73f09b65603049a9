"""Many machines on one table of jobs: leases, deaths of everybody, nothing lost."""

import contextlib
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import optuna
import pytest

from jaxpipe import tuned
from jaxpipe.errors import TuningError
from jaxpipe.records import Measurement
from jaxpipe.target import host_device
from jaxpipe.tune import jobs_table
from jaxpipe.tune.crew import ReplayCrew
from jaxpipe.tune.job import Job, Outcome
from jaxpipe.tune.jobs_table import ATTEMPTS, JobsTable
from jaxpipe.tune.ledger import Ledger
from jaxpipe.tune.methods import METHODS
from jaxpipe.tune.study import Study
from jaxpipe.tune.workers import TableCrew, Worker
from tests.tune.test_study import PROBLEM, SPACE, recording

optuna.logging.set_verbosity(optuna.logging.ERROR)
ROOT = pathlib.Path(__file__).parent.parent.parent
STARTER = pathlib.Path(__file__).parent / "postgres.sh"
DEVICE = host_device().name


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "shipped")


class Server:
    """A PostgreSQL of this test's own."""

    def __init__(self, folder):
        self.folder = folder
        self.url = self("start")

    def __call__(self, action):
        return subprocess.run(
            [STARTER, action, self.folder], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()


@contextlib.contextmanager
def running_server():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="jaxpipe_pg"))
    folder.chmod(0o755)  # the server may run as another user
    server = Server(folder / "server")
    try:
        yield server
    finally:
        server("stop")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server():
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return os.environ.get("JAXPIPE_TEST_POSTGRES") or request.getfixturevalue("server").url


def job(number=0, row=0):
    return Job(number, PROBLEM, "host", (SPACE.schedule(row),))


def outcome(number=0, worker="w"):
    return Outcome(number, (Measurement("ok", (1e-3,)),), worker=worker)


NAMES = (f"study {os.getpid()} {i}" for i in itertools.count())


@pytest.fixture
def table(url):
    table = JobsTable(url)
    yield table
    table.close()


def claim(table, device, worker="w", lease_s=60.0):
    return table.claim(worker, "host", device, lease_s)


def test_a_job_survives_its_text():
    assert Job.from_json(job(3).to_json()) == job(3)
    assert Outcome.loads(outcome(3).dumps()) == outcome(3)


def test_jobs_come_in_order_and_each_to_one_worker(table):
    study = next(NAMES)
    for number in range(3):
        table.submit(study, study, job(number), f"{study}{number}")
    claimed = [claim(table, study, worker) for worker in "abc"]
    assert [lease.job.number for lease in claimed] == [0, 1, 2]
    assert claim(table, study) is None


def test_a_repeated_submission_is_one_job(table):
    study = next(NAMES)
    for _ in range(3):
        table.submit(study, study, job(), f"{study} same")
    assert claim(table, study) is not None
    assert claim(table, study) is None


def test_a_worker_gets_only_jobs_of_its_own_device(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    assert claim(table, "another device") is None


def test_the_job_of_a_silent_worker_goes_to_another(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    claim(table, study, "dead", lease_s=0.05)
    time.sleep(0.1)
    assert claim(table, study, "alive") is not None


def test_a_renewed_lease_stays_with_its_worker(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    lease = claim(table, study, "slow", lease_s=0.3)
    for _ in range(4):
        time.sleep(0.15)
        table.renew(lease, "slow", 0.3)
    assert claim(table, study, "other") is None


def test_a_job_that_kills_workers_is_given_up_with_a_reason(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    for worker in range(ATTEMPTS):
        assert claim(table, study, f"w{worker}", lease_s=-1.0) is not None
    assert claim(table, study) is None
    (done,) = table.finished(study)
    assert done.outcome.measurements[0].status == "crashed"
    assert "3 workers were lost with it, the last was w2" in done.outcome.measurements[0].reason


def test_a_finished_job_is_there_until_it_is_confirmed(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    lease = claim(table, study)
    for _ in range(2):  # a repeated call changes nothing
        table.finish(lease.id, lease.token, outcome())
    (done,) = table.finished(study)
    assert done.outcome == outcome()
    table.confirm(done.id)
    assert table.finished(study) == []


def test_two_workers_outcomes_of_one_job_are_both_kept(table):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    lease = claim(table, study, "a", lease_s=-1.0)
    claim(table, study, "b")
    for worker in ("b", "a", "a"):
        table.finish(lease.id, lease.token, outcome(worker=worker))
    assert {done.outcome.worker for done in table.finished(study)} == {"a", "b"}


def test_workers_without_a_shared_storage_are_refused():
    with pytest.raises(TuningError, match="use postgresql://"):
        TableCrew("tuning.log", "s", "d")


def test_what_a_worker_could_not_hand_in_is_handed_in_by_the_next(table, url, tmp_path):
    study = next(NAMES)
    table.submit(study, study, job(), jobs_table.new_token())
    lease = claim(table, study)
    (tmp_path / f"{lease.id}-{lease.token}.json").write_text(outcome().dumps())
    Worker(url, "host", study, ReplayCrew(SPACE, recording()), tmp_path).run(idle_s=0.1)
    assert len(table.finished(study)) == 1
    assert list(tmp_path.glob("*.json")) == []


def study_of(tmp_path, url):
    study = Study(
        SPACE,
        "host",
        TableCrew(url, str(tmp_path), DEVICE),
        METHODS["random"].make(SPACE.candidates, 0),
        Ledger(tmp_path / "ledger.jsonl"),
        tmp_path / "tuned.json",
        storage=url,
    )
    study.seeds = False
    return study


TUNER = """
import sys, pathlib
from jaxpipe.tune.study import Budget
from tests.tune.test_workers import study_of
study_of(pathlib.Path(sys.argv[1]), sys.argv[2]).run(Budget(int(sys.argv[3])))
"""


def start(tmp_path, *command):
    env = {**os.environ, "JAXPIPE_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *map(str, command)], env=env, cwd=ROOT)


def start_worker(tmp_path, url, number):
    return start(
        tmp_path, "tuning/worker.py", "--storage", url, "--executor", "host", "--lease", "2",
        "--spool", tmp_path / f"spool{number}", "--measuring", "tests.tune.children",
    )  # fmt: skip


def start_tuner(tmp_path, url, trials):
    return start(tmp_path, "-c", TUNER, tmp_path, url, trials)


def end(processes):
    for process in processes:
        process.kill()
        process.wait()


def test_a_tuner_and_two_workers_finish_a_study(url, tmp_path):
    workers = [start_worker(tmp_path, url, i) for i in range(2)]
    tuner = start_tuner(tmp_path, url, 12)
    try:
        assert tuner.wait(120) == 0
    finally:
        end([tuner, *workers])
    assert len(Ledger(tmp_path / "ledger.jsonl").read()) >= 12
    assert len(tuned.Table.load(tmp_path / "tuned.json")) == 1


@pytest.mark.postgres
@pytest.mark.slow
def test_twenty_deaths_of_tuner_worker_or_database_lose_no_measurement(tmp_path):
    """kill -9 of one of them at a random moment, twenty times; then the study is completed."""
    with running_server() as server:
        _kill_twenty_times(server, tmp_path)


def _kill_twenty_times(server, tmp_path):
    url, rng = server.url, random.Random(7)
    workers = [start_worker(tmp_path, url, i) for i in range(2)]
    tuner = start_tuner(tmp_path, url, 90)
    try:
        for _ in range(20):
            time.sleep(rng.uniform(0.5, 3.0))
            victim = rng.choice(["tuner", "worker", "database"])
            if victim == "tuner":
                end([tuner])
                tuner = start_tuner(tmp_path, url, 90)
            elif victim == "worker":
                index = rng.randrange(2)
                end([workers[index]])
                workers[index] = start_worker(tmp_path, url, index)
            else:
                server("kill")
                server("start")
        finished = finished_measurements(url, tmp_path)
        while tuner.poll() is None or tuner.returncode != 0:
            if tuner.poll() is not None:
                tuner = start_tuner(tmp_path, url, 90)
            time.sleep(0.2)
        final = {r.schedule for r in Ledger(tmp_path / "ledger.jsonl").read()}
        assert len(final) >= 80  # a trial that was given back may be measured twice
        assert finished <= final
    finally:
        end([tuner, *workers])


def finished_measurements(url, tmp_path):
    """Every schedule that any worker has handed in or filed so far, told or not."""
    table = JobsTable(url)
    done = {s for row in table.finished(str(tmp_path)) for s in row.job.schedules}
    table.close()
    return done | {r.schedule for r in Ledger(tmp_path / "ledger.jsonl").read()}
