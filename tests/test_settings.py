"""Settings in odd surroundings: no home, a cache that is none, wrong values."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxpipe import settings, tuned
from jaxpipe.errors import SettingError
from jaxpipe.model import calibration

PRODUCT = "import jax.numpy as j, jaxpipe; print(jaxpipe.dot(j.ones((2, 3)), j.ones((3, 2)))[0, 0])"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXPIPE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")


@pytest.mark.parametrize("xdg", ["", "relative"])
def test_a_cache_home_that_is_no_absolute_path_is_the_users(xdg, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert settings.cache_dir() == pathlib.Path("/home/somebody/.cache/jaxpipe")


@pytest.mark.parametrize(
    ("given", "found"), [("", "/xdg/jaxpipe"), ("~/a b", "/home/somebody/a b"), ("/c", "/c")]
)
def test_the_cache_directory(given, found, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", given)
    assert settings.cache_dir() == pathlib.Path(found)


def test_without_a_home_nothing_is_kept(monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert (calibration.load(), len(tuned.read(tuned.user_path("a100")))) == ({}, 0)
    with pytest.raises(OSError, match="Not a directory"):
        calibration.store("a100", {})


def test_an_unknown_home_is_told(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", "~nobody_of_that_name/x")
    with pytest.raises(SettingError, match="somebody with a home"):
        settings.cache_dir()


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5"])
def test_a_number_that_is_none_is_told(text, monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_MISS_TRIALS", text)
    with pytest.raises(SettingError, match="it takes a whole number of at least 1"):
        settings.whole("JAXPIPE_MISS_TRIALS")


def test_a_product_needs_no_cache(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    surroundings = {**os.environ, "JAXPIPE_CACHE_DIR": str(tmp_path / "file" / "cache")}
    command = [sys.executable, "-c", PRODUCT]
    assert subprocess.check_output(command, env=surroundings, text=True) == "3.0\n"
