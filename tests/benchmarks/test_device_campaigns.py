"""The campaigns for a lent GPU run up to where the first kernel would be launched."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DEVICE = ROOT / "benchmarks" / "device"
DRY_RUNS = {
    "a_contract": ([], "tests:"),
    "b_operators": (["--only", "1x4096x4096"], "bytes spilled"),
    "c_sweep": (["--only", "512x3072x768", "--limit", "2"], "legal schedules, 2 to measure"),
    "d_models": ([], "resnet --model resnet50"),
    "e_graphs": ([], "6 kernels lowered"),
}


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEVICE / f"{name}.py"), *arguments],
        cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu", "JAXPIPE_COMPILE_JOBS": "2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_campaign_runs_dry_to_the_first_launch(name, tmp_path) -> None:
    arguments, expected = DRY_RUNS[name]
    result = run(name, "--dry-run", "--out", str(tmp_path), *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert expected in result.stdout


@pytest.mark.slow
def test_without_a_gpu_a_campaign_says_so() -> None:
    result = run("d_models")
    assert result.returncode == 3
    assert "no GPU is visible to JAX: run `python -m jaxpipe doctor`" in result.stdout


def test_every_campaign_is_tested_and_told_of() -> None:
    scripts = {path.stem for path in DEVICE.glob("[a-z]_*.py")}
    assert scripts == set(DRY_RUNS)
    readme = (DEVICE / "README.md").read_text()
    assert [s for s in scripts if f"{s}.py" not in readme] == []
