"""A pipelined sm_80 product: right numbers and silence when correct, a report for every fault."""

import time

import pytest

from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode
from tests.ptx.kernels import FAULTS_SM80, gemm_sm80, module_of, run_gemm_sm80

MODES = pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=lambda m: f"{m.landing}-{m.order}")


@MODES
@pytest.mark.parametrize(
    "shape", [(64, 64, 256), (100, 72, 88), (1, 8, 8), (130, 128, 32)], ids=str
)
def test_a_correct_kernel_passes_in_every_mode(mode: Mode, shape: tuple[int, int, int]) -> None:
    report, error = run_gemm_sm80(module_of(gemm_sm80()), *shape, mode=mode)
    assert report.ok, [h.text for h in report.hazards]
    assert error < 1e-6


@pytest.mark.parametrize("fault", sorted(FAULTS_SM80))
def test_a_fault_is_reported_in_some_mode(fault: str) -> None:
    module = module_of(gemm_sm80(fault))
    results = [run_gemm_sm80(module, 96, 64, 224, mode=mode) for mode in ADVERSARIAL_MODES]
    assert any(not report.ok or not error < 1e-6 for report, error in results)


def test_a_swizzle_leaves_no_bank_conflicts() -> None:
    report, _ = run_gemm_sm80(module_of(gemm_sm80()), 64, 64, 64, mode=Mode())
    assert report.bank_conflicts == 0


def test_rows_without_swizzle_conflict() -> None:
    report, _ = run_gemm_sm80(module_of(gemm_sm80(swizzled=False)), 64, 64, 64, mode=Mode())
    assert report.bank_conflicts > 0


def test_a_report_names_the_source_line() -> None:
    module = module_of(gemm_sm80("no wait"))
    report, _ = run_gemm_sm80(module, 64, 64, 128, mode=Mode())
    assert any("kernel.cu:" in hazard.text and hazard.line > 0 for hazard in report.hazards)


def test_the_main_loop_is_found_and_counted() -> None:
    report, _ = run_gemm_sm80(module_of(gemm_sm80()), 64, 64, 320, mode=Mode())
    assert report.main_loop is not None
    assert report.main_loop.trips == 4 * 10  # four warps
    assert report.main_loop.tensor_instructions_per_trip == 16
    assert report.main_loop.barriers_per_trip == 1


def test_threads_do_not_change_the_result() -> None:
    module = module_of(gemm_sm80())
    one, _ = run_gemm_sm80(module, 128, 128, 64, Mode("random", "random", 7), threads=1)
    many, _ = run_gemm_sm80(module, 128, 128, 64, Mode("random", "random", 7), threads=4)
    assert one == many


def test_256_cubed_with_every_check_takes_well_under_half_a_second_of_one_core() -> None:
    """0.024 s on a quiet machine (benchmarks/results/interpreter_speed.jsonl)."""
    module, seconds = module_of(gemm_sm80()), []
    for _ in range(3):
        started = time.process_time()
        report, _ = run_gemm_sm80(module, 256, 256, 256, Mode(), threads=1)
        seconds.append(time.process_time() - started)
        assert report.ok
    assert min(seconds) < 0.5
