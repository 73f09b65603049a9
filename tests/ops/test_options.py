"""Options: precedence, validation, and jit caches that split on them."""

import jax
import jax.numpy as jnp
import pytest

import jaxpipe
from jaxpipe import tuned
from jaxpipe.choose import choose
from jaxpipe.errors import RecordError, SettingError, TuningError
from jaxpipe.ops import executors
from jaxpipe.ops.options import Options, Records, current
from jaxpipe.problem import Matmul
from jaxpipe.records import Measurement, Record
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import host_device


def implementations(ledger) -> set[str]:
    return {site.implementation for site, _ in ledger.rows()}


def test_a_jitted_function_is_traced_anew_under_other_options() -> None:
    f = jax.jit(lambda x: jaxpipe.dot(x, x))
    x = jnp.ones((3, 3))
    with jaxpipe.coverage() as ledger:
        f(x)
        assert implementations(ledger) == {"host"}
        with jaxpipe.options(implementation="xla"):
            f(x)
        assert implementations(ledger) == {"host", "xla"}
        f(x)
        assert ledger.total == 2


def test_a_keyword_beats_the_context_beats_the_setting(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_IMPLEMENTATION", "interpret")
    assert current().implementation == "interpret"
    with jaxpipe.options(implementation="xla"):
        assert current().implementation == "xla"
        assert current("host").implementation == "host"


def test_nested_options_add_up() -> None:
    with jaxpipe.options(target="h200"), jaxpipe.options(implementation="xla") as merged:
        assert merged == Options("xla", "h200")
    assert current() == Options()


def test_an_unknown_implementation_is_refused() -> None:
    with (
        pytest.raises(SettingError, match=r"'tpu' does not exist"),
        jaxpipe.options(implementation="tpu"),
    ):
        pass


def test_a_schedule_given_by_the_caller_is_the_one_that_runs() -> None:
    schedule = HostSchedule(rows=4, strip=32)
    with jaxpipe.options(schedule=schedule), jaxpipe.coverage() as ledger:
        jax.jit(lambda x: jaxpipe.dot(x, x)).lower(jnp.ones((20, 20)))
    ((site, _),) = ledger.rows()
    assert (site.schedule, site.source) == (str(schedule), "explicit")


def test_coverage_counts_a_loop_body_once_and_a_cached_program_never() -> None:
    f = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jaxpipe.dot(x, x), x))
    with jaxpipe.coverage() as ledger:
        f(jnp.ones((4, 4)))
        f(jnp.ones((4, 4)))
    assert (ledger.total, ledger.taken, ledger.fraction) == (1, 1, 1.0)


def test_coverage_prints_who_took_what() -> None:
    with jaxpipe.coverage() as ledger:
        jax.jit(lambda x: jaxpipe.dot(x, x, activation="relu")).lower(jnp.ones((4, 4)))
        jax.jit(lambda x: jaxpipe.dot(x, x)).lower(jnp.ones((4, 4), jnp.int16))
    text = str(ledger)
    assert "1 of 2 sites run on jaxpipe (50.0 %)" in text
    assert "host      matmul 4x4x4 nn float32->float32 float32 relu" in text
    assert "xla       dot int16[4,4] x int16[4,4]" in text


# ------------------------------------------------------------------ tuned records
SIZE = 20


def winner(rows: int, xla_s: float = 0.0) -> tuned.Table:
    problem = Matmul(SIZE, SIZE, SIZE, dtype="float32")
    measured = Measurement("ok", (1e-6,) * 3, (xla_s,) * 3 if xla_s else ())
    schedule = HostSchedule(rows=rows, strip=32)
    return tuned.Table.of([Record(problem.key, "host", host_device().name, schedule, measured)])


def traced_schedules(f, *contexts) -> list[str]:
    """What each trace of jitted f ran by; a context that traces nothing adds nothing."""
    x = jnp.ones((SIZE, SIZE))
    with jaxpipe.coverage() as ledger:
        seen = []
        for context in contexts:
            before = ledger.total
            with jaxpipe.options(**context):
                f(x)
            seen.append(ledger.total - before)
    return seen


@pytest.fixture
def square():
    return jax.jit(lambda x: jaxpipe.dot(x, x))


def test_a_table_reaches_the_choice(square) -> None:
    with jaxpipe.options(tuned=winner(4)), jaxpipe.coverage() as ledger:
        square.lower(jnp.ones((SIZE, SIZE)))
    ((site, _),) = ledger.rows()
    assert (site.schedule, site.source) == (str(HostSchedule(rows=4, strip=32)), "tuned")


def test_jit_caches_split_on_the_content_of_a_table(square, tmp_path) -> None:
    path = tmp_path / "tuned.json"
    path.write_text(winner(4).dumps())
    contexts = [{}, {"tuned": winner(4)}, {"tuned": path}, {"tuned": winner(5)}, {}]
    assert traced_schedules(square, *contexts) == [1, 1, 0, 1, 0]
    path.write_text(winner(6).dumps())
    assert traced_schedules(square, {"tuned": path}, {"tuned": str(path)}) == [1, 0]


def test_a_table_is_named_by_its_content_in_programs() -> None:
    """Partitioned programs carry their options as text: no path, nothing of this process."""
    text = str(Options(tuned=Records.of(winner(4))))
    assert (
        text
        == str(Options(tuned=Records.of(winner(4))))
        != str(Options(tuned=Records.of(winner(5))))
    )
    assert text.startswith("Options(tuned=1 records ")


def test_a_file_without_records_is_refused_on_entry(tmp_path) -> None:
    with pytest.raises(RecordError, match=r"missing\.json"):
        jaxpipe.options(tuned=tmp_path / "missing.json").__enter__()


def test_where_a_record_shows_that_xla_wins_xla_is_taken(square) -> None:
    x = jnp.ones((SIZE, SIZE))
    with jaxpipe.options(tuned=winner(4, xla_s=5e-7)), jaxpipe.coverage() as ledger:
        square(x)
        jaxpipe.dot(x, x, implementation="host")
    assert implementations(ledger) == {"xla", "host"}
    assert any("XLA was measured to be faster" in reason for reason in ledger.left)
    with jaxpipe.options(tuned=winner(4, xla_s=2e-6)), jaxpipe.coverage() as ledger:
        square(x)
    assert implementations(ledger) == {"host"}


# ------------------------------------------------------------------ policies on a miss
@pytest.mark.parametrize("implementation", [None, "host"])
def test_a_miss_can_be_an_error(monkeypatch, tmp_path, implementation) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("JAXPIPE_ON_MISS", "error")
    x = jnp.ones((SIZE, SIZE))
    with pytest.raises(TuningError, match=r"no tuned record for matmul 20x20x20"):
        jaxpipe.dot(x, x, implementation=implementation)
    with jaxpipe.options(tuned=winner(4)):
        jaxpipe.dot(x, x, implementation=implementation)
    with jaxpipe.coverage() as ledger:  # what no kernel serves is no miss
        jax.jit(lambda x: jaxpipe.dot(x, x)).lower(x.astype(jnp.int16))
    assert implementations(ledger) == {"xla"}


def test_a_miss_is_handed_to_the_tuner(monkeypatch, tmp_path, square) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    asked = []

    def tune(problem, executor, target):
        asked.append((problem.key, executor))
        (record,) = winner(7).rows.values()
        return record

    monkeypatch.setattr("jaxpipe.tune.on_miss.tune", tune)
    with jaxpipe.coverage() as ledger:
        square.lower(jnp.ones((SIZE, SIZE)))
    ((site, _),) = ledger.rows()
    assert (site.source, site.schedule) == ("tuned", str(HostSchedule(rows=7, strip=32)))
    assert asked == [("matmul 20x20x20 nn float32->float32 float32", "host")]


def test_a_tuner_that_is_not_installed_is_named(monkeypatch) -> None:
    def absent(name):
        raise ModuleNotFoundError("No module named 'optuna'", name="optuna")

    monkeypatch.setenv("JAXPIPE_ON_MISS", "tune")
    monkeypatch.setattr(executors.importlib, "import_module", absent)
    with pytest.raises(TuningError, match=r"needs optuna: pip install 'jaxpipe\[tune\]'"):
        choose(Matmul(31, 32, 33, dtype="float32"), executor="host", tune=executors.tune_now)


def test_profiles_show_the_problem_and_the_schedule() -> None:
    """As metadata of the compiled custom call, which profilers show."""
    schedule = HostSchedule(rows=4, strip=32)
    with jaxpipe.options(schedule=schedule):
        compiled = jax.jit(lambda x: jaxpipe.dot(x, x)).lower(jnp.ones((SIZE, SIZE))).compile()
    (call,) = [line for line in compiled.as_text().splitlines() if "custom-call(" in line]
    assert f"jaxpipe.host[matmul 20x20x20 nn float32->float32 float32][{schedule}]" in call
