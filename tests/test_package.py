"""The package as a whole: import, linking, version, the public names, the command line."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import jaxpipe
from jaxpipe import _native, cli

ROOT = pathlib.Path(__file__).parent.parent


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == jaxpipe.__version__


def test_every_public_name_exists_and_has_a_docstring() -> None:
    for name in jaxpipe.__all__:
        value = getattr(jaxpipe, name)
        assert name.startswith("__") or value.__doc__, f"jaxpipe.{name} has no docstring"


def test_import_costs_less_than_a_second_beyond_jax() -> None:
    code = (
        "import time, jax, jax.numpy, jax.ffi, jax.export; t = time.process_time();"
        "import jaxpipe; print(time.process_time() - t)"
    )
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 1.0


@pytest.mark.parametrize(
    "heavy", ["optuna", "flax", "xgboost", "matplotlib", "torch", "scipy.stats"]
)
def test_import_does_not_load(heavy: str) -> None:
    result = python("-c", f"import sys, jaxpipe; print({heavy!r} in sys.modules)")
    assert result.stdout.strip() == "False", result.stdout + result.stderr


def test_the_extension_links_no_cuda_library() -> None:
    needed = subprocess.run(
        ["readelf", "-d", _native.__file__], capture_output=True, text=True
    ).stdout
    libraries = re.findall(r"NEEDED.*\[(.*)\]", needed)
    assert libraries, "readelf told nothing"
    assert not [name for name in libraries if re.search("cuda|cudart|nvrtc|cublas", name)]


def test_the_extension_is_built_with_the_oldest_ffi_headers() -> None:
    assert _native.FFI_API_VERSION == (0, 3)


def test_the_command_line_lists_every_command() -> None:
    result = python("-m", "jaxpipe", "--help")
    assert result.returncode == 0
    assert [c.name for c in cli.COMMANDS if c.name not in result.stdout] == []


def test_the_command_line_refuses_an_unknown_command() -> None:
    result = python("-m", "jaxpipe", "nonsense")
    assert result.returncode == 2
    assert "nonsense" in result.stderr


@pytest.mark.parametrize("command", [c.name for c in cli.COMMANDS])
def test_every_command_explains_itself(command: str) -> None:
    result = python("-m", "jaxpipe", command, "--help")
    assert result.returncode == 0, result.stderr
