"""`jaxpipe.doctor()`: every finding stands alone, what is absent is no fault."""

import importlib
import subprocess
import sys

import pytest

import jaxpipe
from jaxpipe.toolchain.cache import KernelCache

module = importlib.import_module("jaxpipe.doctor")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    return KernelCache(tmp_path)


def finding(check, what: str):
    return next(f for f in module._run(check) if f.what == what)


def test_a_plain_machine_is_healthy(cache) -> None:
    report = jaxpipe.doctor()
    assert report.is_healthy, str(report)
    states = {f.what: f.state for f in report.findings}
    assert states["host"] == states["xla"] == states["extension"] == "ok"


def test_unreadable_cache_entries_are_counted_and_named(cache) -> None:
    path = cache.path("ab" * 32)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damage")
    found = finding(module._cache, "kernel cache")
    assert found.state == "ok"
    assert f"1 kernels, 0.0 MB; 1 unreadable, rebuilt when asked for: {path}" in found.text


def test_a_misspelt_setting_is_a_fault_that_lists_the_settings(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_CACHEDIR", "/tmp")
    found = finding(module._settings, "JAXPIPE_CACHEDIR")
    assert found.state == "fault"
    assert "JAXPIPE_CACHE_DIR" in found.text


def test_a_bad_value_is_a_fault(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_COMPILER", "gcc")
    assert finding(module._settings, "JAXPIPE_COMPILER").state == "fault"


def test_a_check_that_breaks_is_a_finding() -> None:
    def _weather():
        raise OSError("it rains")
        yield

    assert finding(_weather, "weather").text == "OSError: it rains"


def test_an_error_that_quotes_everything_is_cut() -> None:
    def _arguments():
        raise TypeError("got\n" + "1, " * 1000)
        yield

    text = finding(_arguments, "arguments").text
    assert text.startswith("TypeError: got 1, 1,")
    assert text.endswith(" ...")
    assert len(text) <= 300


def test_the_fake_gpu_of_a_child_process_is_described(tmp_path) -> None:
    from tests.cuda.conftest import build

    library = build("fake_cuda", tmp_path)
    code = "import importlib; m = importlib.import_module('jaxpipe.doctor');"
    code += "print(*m._run(m._extension), *m._run(m._cuda_driver), sep='\\n')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"JAXPIPE_LIBCUDA": str(library), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "libfake_cuda.so, for CUDA 13.0" in result.stdout
    assert "GPU 1            ok     Fake sm_80, compute capability 8.0, 132 SMs" in result.stdout
    assert "kernels for sm_90a, model by likeness" in result.stdout
