"""Options: precedence, validation, and jit caches that split on them."""

import jax
import jax.numpy as jnp
import pytest

import jaxpipe
from jaxpipe.errors import SettingError
from jaxpipe.ops.options import Options, current
from jaxpipe.schedule import HostSchedule


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
