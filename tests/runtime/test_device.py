"""Which GPU kernels are made for: never device 0 by assumption."""

from dataclasses import dataclass
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxpipe import target
from jaxpipe.errors import TargetError
from jaxpipe.runtime import device


@dataclass(frozen=True)
class Gpu:
    device_kind: str
    compute_capability: str
    core_count: int = 132
    platform: str = "gpu"


H200 = Gpu("NVIDIA H200 141GB HBM3e", "9.0")
A100 = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 108)
H20 = Gpu("NVIDIA H20", "9.0", 78)
T4 = Gpu("Tesla T4", "7.5", 40)
CPU = Gpu("cpu", "", 0, "cpu")


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch):
    monkeypatch.delenv("JAXPIPE_TARGET", raising=False)


def test_the_programs_device_decides() -> None:
    assert device.resolve([H200]).name == "h200"
    assert device.resolve([A100, A100]).name == "a100_80gb"


def test_a_name_from_the_caller_overrules_the_devices() -> None:
    assert device.resolve([H200], "a100").name == "a100"
    assert device.resolve([H200], "sm_89").arch == "sm_89"


def test_the_setting_speaks_only_where_the_devices_are_unknown(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_TARGET", "l4")
    assert device.resolve([]).name == "l4"
    assert device.resolve([H200]).name == "h200"


def test_cpus_say_nothing_of_a_program_that_is_lowered_for_a_gpu(monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_TARGET", "h100")
    assert device.resolve([CPU]).name == "h100"


def test_several_kinds_in_one_program_are_refused_by_name() -> None:
    with pytest.raises(TargetError, match=r"several kinds \(a100_80gb, h200\)"):
        device.resolve([H200, A100])


def test_an_unknown_model_gets_its_architecture_and_a_name_of_its_own() -> None:
    row = device.resolve([H20])
    assert (row.name, row.arch, row.sm_count) == ("nvidia_h20", "sm_90a", 78)
    assert row.dram_bps == target.device("h100_pcie").dram_bps


def test_a_gpu_before_ampere_is_refused_with_the_remedy() -> None:
    with pytest.raises(TargetError, match="need sm_80 or later"):
        device.resolve([T4])


@pytest.mark.parametrize("name", ["", "geforce", "sm_70"])
def test_without_a_known_name_the_ways_to_give_one_are_listed(name: str) -> None:
    if jax.default_backend() == "gpu" and not name:
        pytest.skip("a GPU is visible: it is the answer")
    with pytest.raises(TargetError, match=r"JAXPIPE_TARGET to one of a100, "):
        device.resolve([], name)


def context(**fields) -> SimpleNamespace:
    return SimpleNamespace(module_context=SimpleNamespace(axis_context=SimpleNamespace(**fields)))


@pytest.mark.parametrize(
    "ctx",
    [
        context(device_assignment=(A100, A100)),
        context(mesh=SimpleNamespace(devices=np.array([[A100], [A100]], dtype=object))),
    ],
    ids=["jit", "shard_map"],
)
def test_a_lowering_context_tells_its_devices(ctx) -> None:
    assert device.resolve(device.devices_of(ctx)).name == "a100_80gb"


@pytest.mark.parametrize(
    "ctx", [context(device_assignment=None), context(mesh=SimpleNamespace()), context()]
)
def test_a_context_without_devices_is_no_error_by_itself(ctx) -> None:
    assert device.devices_of(ctx) == ()
