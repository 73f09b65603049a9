"""The C++ core by itself: csrc/tests/ptx_core.cc prints a line a check, without any PTX."""

import pathlib
import subprocess

import pytest

from tests.cuda.conftest import ROOT, compiler

SOURCES = (
    "tests/ptx_core.cc",
    *(f"ptx/{n}.cc" for n in ("shadow", "counters", "hazard", "program")),
)
CHECKS = 35


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program: pathlib.Path = tmp_path_factory.mktemp("core") / "ptx_core"
    csrc = ROOT / "csrc"
    files = [str(csrc / name) for name in SOURCES]
    flags = ["-std=c++17", "-O0", f"-I{csrc}"]
    subprocess.run([compiler(), *flags, *files, "-o", str(program)], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_check_of_shadows_banks_and_swizzles_holds(printed: list[str]) -> None:
    assert [line for line in printed if not line.startswith("ok ")] == []
    assert len(printed) == CHECKS
