"""Triton's matrix products in our interpreter: PTX of a compiler that nobody here wrote.

Every kernel must give the right numbers and no hazard, in every mode of time, on ragged sizes, on
sizes below one tile and on whole tiles. The interpreter's reading of the PTX ISA (descriptors,
swizzles, phases, what orders what) is thereby checked against another author's. A dozen kernels are
fast; `pytest -m "" tests/ptx/test_triton.py` runs all, in some minutes that are mostly compilation.
"""

import pytest

from tests.ptx.triton_cases import BY_NAME, CASES, FINDINGS, TritonCase

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[peers]'")

from tests.ptx.triton_compile import compile_case
from tests.ptx.triton_run import ADVERSARIAL_MODES, outcomes, unmet_claims

FAST = (
    "sm80-pointers-bf16-64x64x32-nn-s3-w4",
    "sm80-pointers-bf16-64x64x32-tt-s5-w4",
    "sm80-pointers-bf16-64x64x32-nt-s3-w4-multiples-none",
    "sm80-pointers-f16-64x64x32-tn-s4-w4",
    "sm80-pointers-f32-64x64x32-nn-s3-w4-tf32",
    "sm80-pointers-s8-64x64x64-nt-s2-w4",
    "sm90-pointers-bf16-64x128x64-nn-s4-w4",
    "sm90-descriptors-bf16-64x64x64-nt-s3-w4",
    "sm90-descriptors-bf16-64x64x32-tn-s3-w4",
    "sm90-own-descriptors-bf16-64x64x16-nn-s3-w4",
    "sm90-own-descriptors-bf16-128x64x64-nn-s3-w4-specialized",
    "sm90-layouts-bf16-64x64x64-tt-s1-w4-to-f32-swizzle-64-64",
)

# What is dropped from a kernel, every instance of it: each must be noticed.
_AMPERE, _POINTERS = FAST[0], FAST[6]
_TMA, _ROLES = "sm90-descriptors-bf16-64x64x64-nt-s3-w4", FAST[10]
_RING = "sm90-ring-bf16-64x32x32-nn-s3-w4-to-f32-swizzle-64-64"
BROKEN = (
    (_AMPERE, r"cp\.async\.wait_group"),
    (_AMPERE, r"cp\.async\.commit_group"),
    (_AMPERE, r"bar\.sync"),
    (_POINTERS, r"fence\.proxy\.async"),
    (_POINTERS, r"wgmma\.wait_group"),
    (_POINTERS, r"wgmma\.fence"),
    (_TMA, r"mbarrier\.init"),
    (_TMA, r"mbarrier\.arrive\.expect_tx"),
    (_TMA, r"cp\.async\.bulk\.wait_group"),
    (_TMA, r"bra\.uni waitLoop"),
    (_ROLES, r"mbarrier\.arrive\.shared"),
    (_ROLES, r"setmaxnreg\.dec"),
    (_RING, r"bra\.uni waitLoop"),
    (_RING, r"cp\.async\.mbarrier\.arrive"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dropped"), BROKEN)
def test_a_broken_kernel_is_noticed(name: str, dropped: str) -> None:
    assert any(outcome.fault for outcome in outcomes(BY_NAME[name], dropped))


def test_there_are_enough_kernels() -> None:
    assert len(CASES) - len(FINDINGS) >= 150
    assert {*FAST, *FINDINGS} <= set(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDINGS)
def test_a_defect_of_triton_is_found(name: str) -> None:
    reports = [outcome.report for outcome in outcomes(BY_NAME[name])]
    assert {hazard.kind for report in reports for hazard in report.hazards} == {FINDINGS[name]}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=() if c.name in FAST else pytest.mark.slow)
        for c in CASES
        if c.name not in FINDINGS
    ],
)
def test_a_kernel_is_right_and_free_of_hazards(case: TritonCase) -> None:
    assert unmet_claims(case, compile_case(case)) == []
    found = outcomes(case)
    assert len(found) == 3 * len(ADVERSARIAL_MODES)
    assert [outcome.fault for outcome in found if outcome.fault] == []
