"""Calibrations: laid over the tables, kept in a file, refused when they make no sense."""

from pathlib import Path

import pytest

from jaxpipe.errors import RecordError
from jaxpipe.model import calibration
from jaxpipe.target import DEVICES, HostDevice

HOST = HostDevice("test_cpu", "avx2", 2, 3e9)
H200 = DEVICES["h200"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))


def test_without_a_file_a_device_is_as_in_the_table() -> None:
    assert calibration.calibrated(H200) is H200


def test_what_was_stored_is_laid_over() -> None:
    calibration.store("h200", {"l2_bps": 8.5e12})
    calibration.store("test_cpu", {"clock_hz": 3.7e9})
    assert calibration.calibrated(H200).l2_bps == 8.5e12
    assert calibration.calibrated(HOST).clock_hz == 3.7e9
    assert calibration.calibrated(DEVICES["a100"]) is DEVICES["a100"]


def test_a_new_calibration_replaces_the_old() -> None:
    for clock in (3e9, 4e9):
        calibration.store("test_cpu", {"clock_hz": clock})
    assert calibration.calibrated(HOST).clock_hz == 4e9


def test_facts_cannot_be_measured_away() -> None:
    with pytest.raises(RecordError, match="holds sm_count: what can be measured is dram_share"):
        calibration.lay_over(H200, {"sm_count": 1})


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "devices": {}}', '{"format": 1}'])
def test_a_file_that_is_no_calibration_is_said_and_ignored(text: str) -> None:
    calibration.path().parent.mkdir(exist_ok=True)
    calibration.path().write_text(text)
    with pytest.warns(RuntimeWarning, match="is no calibration"):
        assert calibration.calibrated(H200) is H200
