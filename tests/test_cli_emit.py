"""`python -m jaxpipe emit`: the source, every stage as a file, and refusals with the numbers."""

import pathlib

import pytest

from jaxpipe import cli

MATMUL = ["emit", "matmul", "64", "64", "96", "--dtype", "bfloat16", "--target", "a100"]
SMALL = "block_m=32,block_n=32,block_k=32,warps_m=1,warps_n=1,smem_stages=3,reg_stages=2,split_k=1"


def test_emit_prints_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*MATMUL, "--schedule", SMALL]) == 0
    assert "__launch_bounds__(32, 1)" in capsys.readouterr().out


def test_dump_writes_every_stage(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*MATMUL, "--schedule", SMALL, "--dump", str(tmp_path)]) == 0
    names = [path.name.split("_", 1)[1] for path in sorted(tmp_path.iterdir())]
    assert names == [
        "matmul_nest.ir", "matmul_cache_read.ir", "matmul_tiled.ir", "matmul_pipelined.ir",
        "matmul_fused.ir", "matmul_lowered.ir", "verdicts.txt", "jaxpipe_ampere.cu",
        "jaxpipe_ampere.ptx", "jaxpipe_ampere.cubin", "resources.txt",
    ]  # fmt: skip
    assert "0 bytes spilled" in capsys.readouterr().out


def test_an_illegal_schedule_ends_with_its_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*MATMUL, "--schedule", f"{SMALL},smem_stages=9"]) == 1
    assert "smem_stages=9: use 1 to 8" in capsys.readouterr().err


def test_an_unknown_target_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["emit", "matmul", "8", "8", "8", "--target", "tpu"]) == 1
    assert "devices are a100" in capsys.readouterr().err
