"""Every command line that a user can get wrong ends in one line that says what to do."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxpipe import cli

HUGE = "99999999999999999999"
PRODUCT = "matmul 64 64 64"
WRONG = {
    f"emit matmul {HUGE} 4 4": "use a whole number from 0 to 2147483647",
    f"emit {PRODUCT} --batch {HUGE}": "use a whole number from 0 to 2147483647",
    f"explain matmul 4 {HUGE} 4 --target host": "use a whole number from 0 to 2147483647",
    f"emit {PRODUCT} --dump FILE": "File exists",
    f"emit {PRODUCT} --padding 1": "matmul takes no --padding",
    "emit conv 1 8 8 3 4 3 3 --batch 3": "conv takes no --batch",
    "explain matmul 64 0 64 --target host": "computes nothing",
    "explain matmul 64 64 0": "computes nothing",
    f"explain {PRODUCT} --plot x.foo": "end its name in one of",
    f"explain {PRODUCT} --plot MISSING/x.png": "No such file",
    f"check {PRODUCT} --seed -1": "use a whole number from 0",
    f"tune {PRODUCT} --trials 0": "use a whole number from 1",
    f"tune {PRODUCT} --jobs 0": "use a whole number from 1",
    f"tune {PRODUCT} --seconds nan": "use seconds, 0 or more",
    f"tune {PRODUCT} --timeout -1": "use seconds, 0 or more",
    "tune conv 1 8 8 3 4 --padding 1 2": "takes 1 or 4 numbers, got 2",
    "tune conv 1 8 8 3 4 --kernel 1 2 3": "takes 1 or 2 numbers, got 3",
    "tune export MISSING.jsonl --out x.json": "no file",
    "tune import MISSING": "cannot read records",
    "tune import FILE": "cannot read records",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command_line_ends_in_one_line_that_says_why(
    words: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_bytes(b"\xff")
    try:
        code = cli.main(words.split())
    except SystemExit as stop:  # argparse
        code = int(str(stop.code))
    told = capsys.readouterr().err.splitlines()
    assert code != 0
    assert WRONG[words] in told[-1]


def test_a_reader_that_stops_reading_is_no_fault() -> None:
    command = [sys.executable, "-m", "jaxpipe", "emit", *["matmul", "512", "512", "512"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate()[1] == b""


def test_a_command_without_its_libraries_names_the_extra(tmp_path: pathlib.Path) -> None:
    (tmp_path / "optuna.py").write_text("raise ModuleNotFoundError('no', name='optuna')\n")
    paths = os.pathsep.join([str(tmp_path), str(pathlib.Path(cli.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "jaxpipe", "tune", "matmul", "8", "8", "8"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1, "jaxpipe tune: needs optuna, which is not installed: pip install 'jaxpipe[tune]'\n"
    )  # fmt: skip
