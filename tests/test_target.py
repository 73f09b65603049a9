"""The tables of architectures, devices and the host: complete, sourced, consistent."""

from dataclasses import fields

import pytest

from jaxpipe import target
from jaxpipe.errors import TargetError
from jaxpipe.target import (
    ARCHES,
    DEVICES,
    HOST_ISAS,
    SOURCES,
    Device,
    HostDevice,
    HostIsa,
    arch_of_capability,
    device,
    device_by_model,
    host_device,
    host_threads,
)

NUMBERS = [f.name for f in fields(Device) if f.type in ("int", "float")] + ["tensor_flops_hz"]
PLAUSIBLE = {
    "sm_count": (20, 200), "clock_hz": (1e9, 3e9), "fma_flops_hz": (1e13, 2e14),
    "dram_bps": (2e11, 1e13), "l2_bps": (1e12, 2e13), "l2_bytes": (5e6, 2e8),
    "dram_share": (0.7, 1.0), "l2_kept": (0.5, 1.0), "shared_bytes_per_clk": (128, 128),
    "l2_sm_bytes_per_clk": (32, 64), "shared_latency_clk": (20, 40),
    "l2_latency_clk": (180, 340), "dram_latency_clk": (400, 800),
    "mma_sync_share": (0.2, 1.0), "launch_s": (1e-6, 5e-6),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DEVICES))
def test_every_number_of_a_device_names_its_source(name: str) -> None:
    unsourced = [field for field in NUMBERS if not DEVICES[name].source_of(field)]
    assert unsourced == []


@pytest.mark.parametrize("name", list(DEVICES))
def test_sources_are_known_and_cover_fields_that_exist(name: str) -> None:
    known = {f.name for f in fields(Device)}
    for key, covered in DEVICES[name].sources:
        assert key in SOURCES
        assert set(covered.split()) <= known


@pytest.mark.parametrize("name", list(DEVICES))
def test_the_numbers_of_a_device_are_plausible(name: str) -> None:
    row = DEVICES[name]
    wrong = [f for f, (low, high) in PLAUSIBLE.items() if not low <= getattr(row, f) <= high]
    assert wrong == []


@pytest.mark.parametrize("name", list(DEVICES))
def test_tensor_rates_are_what_the_tensor_cores_do_a_clock(name: str) -> None:
    row = DEVICES[name]
    per_clk = row.flops_hz("bfloat16") / row.sm_count / row.clock_hz
    nearest = min((512, 1024, 2048, 4096, 8192), key=lambda rate: abs(per_clk / rate - 1))
    assert per_clk == pytest.approx(nearest, rel=0.1)


@pytest.mark.parametrize("name", list(DEVICES))
def test_memory_levels_get_slower_outwards(name: str) -> None:
    row = DEVICES[name]
    assert row.shared_latency_clk < row.l2_latency_clk < row.dram_latency_clk
    assert row.shared_bytes_per_clk * row.sm_count * row.clock_hz > row.l2_bps > row.stream_bps


@pytest.mark.parametrize("name", list(DEVICES))
def test_a_device_is_found_by_its_drivers_name(name: str) -> None:
    row = DEVICES[name]
    assert row.match
    assert {device_by_model(f"NVIDIA {word}") for word in row.match} == {row}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100_80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000"),
    ],
)
def test_driver_names_lead_to_their_rows(model: str, name: str) -> None:
    assert device_by_model(model) == DEVICES[name]


def test_an_unknown_model_has_no_row() -> None:
    assert device_by_model("NVIDIA Tesla V100") is None


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(TargetError, match="unknown device 'v100': jaxpipe knows a100, "):
        device("v100")
    with pytest.raises(TargetError, match="has no tensor-core rate for float8_e5m2"):
        DEVICES["a100"].flops_hz("float8_e5m2")


@pytest.mark.parametrize(
    ("capability", "name"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 1), "sm_120")],
)
def test_a_capability_gets_the_best_row(capability: tuple[int, int], name: str) -> None:
    assert arch_of_capability(*capability) is ARCHES[name]


def test_capabilities_before_sm_80_are_refused() -> None:
    with pytest.raises(TargetError, match=r"compute capability 7\.0"):
        arch_of_capability(7, 0)


@pytest.mark.parametrize("row", ARCHES.values(), ids=lambda a: a.name)
def test_a_block_gets_what_an_sm_has_but_the_reserve(row: object) -> None:
    assert (
        row.shared_per_block_bytes + row.shared_reserved_per_block_bytes == row.shared_per_sm_bytes
    )


@pytest.mark.parametrize(("flags", "share"), [({"avx512f"}, 1.0), ({"avx512_fp16"}, 2.0)])
def test_cores_with_two_wide_units_start_twice_as_many_multiply_adds(
    flags: set[str], share: float
) -> None:
    assert target._fma_share(flags) == share
    host = HostDevice("test_cpu", "avx512", 1, 3e9, fma_share=share)
    assert host.fma_flops_hz == 2 * 16 * 3e9 * share


AVX512 = "avx2 fma f16c avx512f avx512bw avx512dq avx512vl"


@pytest.mark.parametrize(
    ("vendor", "flags", "isa"),
    [
        ("AuthenticAMD", f"{AVX512} avx512_bf16", "avx512_bf16"),
        ("GenuineIntel", f"{AVX512} avx512_bf16", "avx512"),
        ("AuthenticAMD", AVX512, "avx512"),
        ("GenuineIntel", "avx2 fma f16c", "avx2"),
    ],
)
def test_pairs_of_bfloat16_are_multiplied_where_that_is_faster(
    vendor: str, flags: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_cpuinfo", lambda: {"vendor_id": vendor, "flags": flags})
    assert host_device().isa == isa


def test_the_host_is_read_from_the_system() -> None:
    host = host_device()
    assert host.threads == host_threads()
    assert host.isa in HOST_ISAS
    assert host.l1_bytes < host.l2_bytes <= host.l3_bytes
    assert host.name.endswith(f"_{host.threads}t")


@pytest.mark.parametrize("isa", HOST_ISAS.values(), ids=lambda i: i.name)
def test_a_panel_is_two_vectors_wide(isa: HostIsa) -> None:
    assert isa.panel_cols == 2 * isa.lanes


def test_the_host_table_is_what_the_extension_says() -> None:
    from jaxpipe import _native

    info, kernels = _native.host_info(), host_device().kernels
    assert info["isas"][0] == host_device().isa
    assert (info["lanes"], info["panel_cols"], info["tile_rows"], info["has_bf16"]) == (
        kernels.lanes, kernels.panel_cols, kernels.tile_rows, kernels.has_bf16,
    )  # fmt: skip
