"""A few nests and one kernel as files, and a hash of every drawn source: refactors change none.

`pytest tests/golden --update-golden` writes them anew; the diff is then part of the review.
"""

from __future__ import annotations

import hashlib
import json
import pathlib

import pytest

from jaxpipe import compiler
from jaxpipe.epilogue import Epilogue
from jaxpipe.ir.printer import to_text
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from tests.drawn import draw

HERE = pathlib.Path(__file__).parent
SM_80 = arch("sm_80")
SCHEDULE = GpuSchedule(block_m=128, block_n=128, block_k=32, smem_stages=3)
CASES: dict[str, tuple[Problem, GpuSchedule]] = {
    "matmul": (
        Matmul(512, 3072, 760, epilogue=Epilogue(bias="column", activation="gelu_erf")), SCHEDULE,
    ),
    "conv2d": (Conv2d(8, 14, 14, 64, 128, (3, 3), padding=((1, 1), (1, 1))), SCHEDULE),
}  # fmt: skip


@pytest.fixture
def updating(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def compare(name: str, text: str, updating: bool) -> None:
    path = HERE / name
    if updating:
        path.write_text(text)
    assert text == path.read_text(), f"{name} changed: run with --update-golden and review"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stage", ["nest", "tiled", "pipelined", "lowered"])
def test_nests_are_as_recorded(case: str, stage: str, updating: bool) -> None:
    stages = dict(compiler.lower(*CASES[case], SM_80)[0].stages)
    compare(f"{case}_{stage}.ir", to_text(stages[stage]), updating)


def test_the_kernel_is_as_recorded(updating: bool) -> None:
    compare("matmul.cu", compiler.emit_kernel(*CASES["matmul"], SM_80).source, updating)


def test_drawn_sources_hash_as_recorded(updating: bool) -> None:
    found = {}
    for seed in range(40):
        source = compiler.emit_kernel(*draw(seed)).source
        found[str(seed)] = hashlib.sha256(source.encode()).hexdigest()[:16]
    compare("manifest.json", json.dumps(found, indent=1) + "\n", updating)
