"""Targets: what an architecture may do (Arch) and how fast a device is (Device), as tables.

Code asks a row for a capability; nothing compares version numbers. Every number of a Device names
its source. HostDevice is the same for the CPU at hand.
"""

from __future__ import annotations

import os
import pathlib
import re
from dataclasses import dataclass

from jaxpipe.errors import TargetError


@dataclass(frozen=True, slots=True)
class Arch:
    """What kernels for one CUDA architecture may contain, and the limits of one SM.

    Sizes in bytes; threads, blocks and registers are per SM unless the name says per block.
    `name` is the exact compile target, e.g. "sm_90a". Source: CUDA C programming guide, compute
    capabilities table; PTX ISA target notes.
    """

    name: str
    compute_capability: tuple[int, int]
    shared_per_block_bytes: int
    shared_per_sm_bytes: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    has_cp_async: bool = True
    has_ldmatrix: bool = True
    has_mma_bf16: bool = True
    has_mma_fp8: bool = False
    has_native_mma_fp8: bool = False  # else ptxas makes mma.sync of float8 from float16 products
    has_tma: bool = False
    has_wgmma: bool = False
    has_clusters: bool = False
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    max_threads_per_block: int = 1024
    shared_reserved_per_block_bytes: int = 1024
    warp_size: int = 32
    shared_banks: int = 32
    shared_bank_bytes: int = 4
    transaction_bytes: int = 32

    @property
    def has_per_object_barriers(self) -> bool:
        """True when each buffer can have its own barrier (mbarrier with transaction counts), so
        that the third pipelining rule of ALCOP (one synchronisation point a scope) is lifted."""
        return self.has_tma


_KIB = 1024

ARCHES: dict[str, Arch] = {
    a.name: a
    for a in (
        Arch("sm_80", (8, 0), 163 * _KIB, 164 * _KIB, 2048, 32),
        Arch("sm_86", (8, 6), 99 * _KIB, 100 * _KIB, 1536, 16),
        Arch("sm_87", (8, 7), 163 * _KIB, 164 * _KIB, 1536, 16),
        Arch("sm_89", (8, 9), 99 * _KIB, 100 * _KIB, 1536, 24, has_mma_fp8=True,
             has_native_mma_fp8=True),
        Arch("sm_90", (9, 0), 227 * _KIB, 228 * _KIB, 2048, 32, has_mma_fp8=True, has_tma=True,
             has_clusters=True),
        Arch("sm_90a", (9, 0), 227 * _KIB, 228 * _KIB, 2048, 32, has_mma_fp8=True, has_tma=True,
             has_wgmma=True, has_clusters=True),
        Arch("sm_100", (10, 0), 227 * _KIB, 228 * _KIB, 2048, 32, has_mma_fp8=True, has_tma=True,
             has_clusters=True),
        Arch("sm_120", (12, 0), 99 * _KIB, 100 * _KIB, 1536, 24, has_mma_fp8=True, has_tma=True,
             has_native_mma_fp8=True, has_clusters=True),
    )
}  # fmt: skip


# Where the numbers of a Device come from; a row names the source of each of its fields.
SOURCES: dict[str, str] = {
    "xla": "openxla/xla, xla/backends/gpu/target_config/specs/<device>.txtpb (2026), queried from the chip by its authors",
    "sheet": "NVIDIA's data sheet or architecture whitepaper of the chip, dense rates with float32 accumulation",
    "benches": "te42kyfo/gpu-benches @ 1c36d50, measured files gpu-latency, gpu-l2-cache, gpu-stream, gpu-small-kernels",
    "same chip": "the measured figures of a sibling of the same die (A40 for A6000, L40 for L40S and RTX 4090, H200 for H100)",
    "dissecting": "Luo et al., arXiv 2402.13499: shared-memory latency of A100, RTX 4090 and H100",
    "field": "published kernels: mma.sync tops out near 60 % of wgmma on H100 (research notes of 2026)",
    "estimate": "not measured by anybody known to us: scaled from the nearest chip with a figure",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Device:
    """How fast one GPU model is: what the performance models need.

    Rates are dense peaks at `clock_hz`; tensor_flops_hz maps operand dtype to multiply-add
    operations per second counted as two ("float32" there is TF32; `fma_flops_hz` is the true
    float32 rate of the CUDA cores). Bandwidths in bytes per second for the whole chip except
    `shared_bytes_per_clk` and `l2_sm_bytes_per_clk` (one SM). Latencies in clocks.

    dram_bps is the data sheet's, streams reach `dram_share` of it; l2_bps is what reads reach.
    l2_kept: share of l2_bytes up to which a working set is still served at that rate.
    mma_sync_share: share of the tensor rate that mma.sync reaches (wgmma and tcgen05 reach all).
    launch_s: a kernel's fixed cost in a stream of kernels, beyond its own memory latency.
    sources: (key of SOURCES, the fields that it covers, space-separated).
    """

    name: str
    arch: str
    sm_count: int
    clock_hz: float
    tensor_flops_hz: tuple[tuple[str, float], ...]
    fma_flops_hz: float
    dram_bps: float
    l2_bps: float
    l2_bytes: int
    dram_share: float = 0.92
    l2_kept: float = 0.75
    shared_bytes_per_clk: float = 128.0
    l2_sm_bytes_per_clk: float = 64.0
    shared_latency_clk: float = 29.0
    l2_latency_clk: float = 262.0
    dram_latency_clk: float = 600.0
    mma_sync_share: float = 1.0
    launch_s: float = 2.0e-6
    match: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def stream_bps(self) -> float:
        """Bytes per second that streams get from device memory."""
        return self.dram_share * self.dram_bps

    def flops_hz(self, dtype: str) -> float:
        """Peak of products of `dtype` operands; TargetError when the chip has no such unit."""
        table = dict(self.tensor_flops_hz)
        if dtype not in table:
            raise TargetError(
                f"{self.name} has no tensor-core rate for {dtype}: it has {', '.join(table)}"
            )
        return table[dtype]

    def source_of(self, field: str) -> str:
        """Where the value of `field` is from, in words; "" for names and match words."""
        return next((SOURCES[key] for key, covered in self.sources if field in covered.split()), "")


def _rates(bf16: float, *, int8: float = 0.0, fp8: bool = False) -> tuple[tuple[str, float], ...]:
    """Tensor rates of a chip whose dense bf16 rate is given: TF32 half, 8-bit twice."""
    rates = [("bfloat16", bf16), ("float16", bf16), ("float32", bf16 / 2)]
    rates += [("int8", int8 or 2 * bf16)]
    if fp8:
        rates += [("float8_e4m3fn", 2 * bf16), ("float8_e5m2", 2 * bf16)]
    return tuple(rates)


_MIB = 1 << 20
_CHIP = "sm_count dram_bps l2_bytes"
_SM = "shared_bytes_per_clk l2_sm_bytes_per_clk"
_MEMORY = "l2_bps dram_share l2_kept l2_latency_clk dram_latency_clk"
_PEAKS = f"clock_hz tensor_flops_hz fma_flops_hz {_SM}"


def _measured(source: str, **covers: str) -> tuple[tuple[str, str], ...]:
    """Sources of a chip whose memory figures come from `source`; covers: what others say."""
    keys = {"mma_share": "field", "guess": "estimate", "same": "same chip"}
    rest = tuple((keys.get(name, name), fields) for name, fields in covers.items())
    return (*rest, ("sheet", _PEAKS), ("xla", _CHIP), (source, f"{_MEMORY} launch_s"),
            ("dissecting", "shared_latency_clk"), ("sheet", "mma_sync_share"))  # fmt: skip


DEVICES: dict[str, Device] = {
    d.name: d
    for d in (
        Device("a100", "sm_80", 108, 1.41e9, _rates(312e12), 19.5e12, 1555e9, 5.4e12, 40 * _MIB,
               0.90, 0.62, l2_latency_clk=212, dram_latency_clk=573, match=("A100-SXM4-40GB", "A100-PCIE-40GB"),
               sources=_measured("benches")),
        Device("a100_80gb", "sm_80", 108, 1.41e9, _rates(312e12), 19.5e12, 2039e9, 5.4e12, 40 * _MIB,
               0.91, 0.62, l2_latency_clk=211, dram_latency_clk=571, match=("A100-SXM4-80GB", "A100 80GB", "A100-SXM-80GB"),
               sources=_measured("benches")),
        Device("h100", "sm_90a", 132, 1.83e9, _rates(989e12, fp8=True), 66.9e12, 3352e9, 9.7e12, 50 * _MIB,
               0.90, 0.80, l2_latency_clk=265, dram_latency_clk=650, mma_sync_share=0.62, match=("H100 80GB HBM3", "H100 SXM"),
               sources=_measured("same chip", mma_share="mma_sync_share")),
        Device("h100_pcie", "sm_90a", 114, 1.62e9, _rates(756e12, fp8=True), 51.2e12, 2039e9, 6.9e12, 50 * _MIB,
               0.97, 0.72, l2_latency_clk=265, dram_latency_clk=650, mma_sync_share=0.62, match=("H100 PCIe",),
               sources=_measured("benches", mma_share="mma_sync_share")),
        Device("h200", "sm_90a", 132, 1.83e9, _rates(989e12, fp8=True), 66.9e12, 4800e9, 9.7e12, 50 * _MIB,
               0.81, 0.80, l2_latency_clk=265, dram_latency_clk=650, mma_sync_share=0.62, match=("H200",),
               sources=_measured("benches", same="l2_latency_clk dram_latency_clk", mma_share="mma_sync_share")),
        Device("a6000", "sm_86", 84, 1.80e9, _rates(154.8e12), 38.7e12, 768e9, 2.4e12, 6 * _MIB,
               0.97, 0.75, l2_latency_clk=240, dram_latency_clk=560, match=("RTX A6000",),
               sources=_measured("same chip", guess="l2_kept l2_latency_clk dram_latency_clk launch_s")),
        Device("l4", "sm_89", 58, 2.04e9, _rates(121e12, fp8=True), 30.3e12, 300e9, 1.75e12, 48 * _MIB,
               0.97, 0.90, l2_latency_clk=277, dram_latency_clk=632, match=("NVIDIA L4",),
               sources=(("sheet", _CHIP), *_measured("estimate"))),
        Device("l40s", "sm_89", 142, 2.52e9, _rates(362e12, fp8=True), 91.6e12, 864e9, 5.2e12, 96 * _MIB,
               0.98, 0.94, l2_latency_clk=277, dram_latency_clk=632, match=("L40S",),
               sources=(("sheet", _CHIP), *_measured("same chip"))),
        Device("rtx4090", "sm_89", 128, 2.52e9, _rates(165.2e12, int8=660.6e12, fp8=True), 82.6e12, 1008e9, 4.7e12, 72 * _MIB,
               0.97, 0.94, l2_latency_clk=277, dram_latency_clk=632, match=("RTX 4090",),
               sources=(("sheet", _CHIP), *_measured("same chip"))),
        Device("b200", "sm_100", 148, 1.835e9, _rates(2250e12, fp8=True), 74.4e12, 7672e9, 1.3e13, 126 * _MIB,
               0.85, 0.75, l2_latency_clk=300, dram_latency_clk=700, mma_sync_share=0.28, match=("B200",),
               sources=_measured("estimate", guess="mma_sync_share")),
        Device("rtx5090", "sm_120", 170, 2.41e9, _rates(209.5e12, int8=838e12, fp8=True), 104.8e12, 1792e9, 6.0e12, 96 * _MIB,
               0.95, 0.90, l2_latency_clk=300, dram_latency_clk=680, match=("RTX 5090",),
               sources=(("sheet", _CHIP), *_measured("estimate"))),
        Device("rtx_pro_6000", "sm_120", 188, 2.6e9, _rates(503.8e12, fp8=True), 125.9e12, 1792e9, 7.0e12, 128 * _MIB,
               0.95, 0.90, l2_latency_clk=300, dram_latency_clk=680, match=("RTX PRO 6000",),
               sources=_measured("estimate")),
    )
}  # fmt: skip


def device(name: str) -> Device:
    """The row of a device by its short name (`a100`); TargetError lists the names."""
    if name not in DEVICES:
        raise TargetError(f"unknown device {name!r}: jaxpipe knows {', '.join(DEVICES)}")
    return DEVICES[name]


def arch(name: str) -> Arch:
    """The row of an architecture by its compile target (`sm_90a`); TargetError lists the names."""
    if name not in ARCHES:
        raise TargetError(f"unknown architecture {name!r}: jaxpipe knows {', '.join(ARCHES)}")
    return ARCHES[name]


def arch_of_capability(major: int, minor: int) -> Arch:
    """The best row for a device of compute capability major.minor.

    An exact row wins (the one with most capabilities: sm_90a before sm_90); an unknown newer
    minor takes the highest known row of the same major that is not above it.
    """
    same = [a for a in ARCHES.values() if a.compute_capability[0] == major]
    fitting = [a for a in same if a.compute_capability[1] <= minor]
    if not fitting:
        raise TargetError(
            f"compute capability {major}.{minor}: jaxpipe's kernels need sm_80 or later and know "
            f"{', '.join(ARCHES)}; use implementation='xla' on this device"
        )
    return max(fitting, key=lambda a: (a.compute_capability, a.has_wgmma))


def device_by_model(model: str) -> Device | None:
    """The row of which a `match` word occurs, as a word, in the driver's model name, else None."""
    for row in DEVICES.values():
        if any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", model) for word in row.match):
            return row
    return None


def host_threads() -> int:
    """Logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class HostIsa:
    """One instruction set of csrc/host: float32 lanes of a vector, columns of a packed panel (two
    vectors), rows of the tallest register tile, and multiply-adds a core starts in a clock."""

    name: str
    lanes: int
    panel_cols: int
    tile_rows: int
    fma_per_clk: float
    has_bf16: bool = False

    def multiplies(self, dtype: str) -> bool:
        """True when its kernels multiply elements of this float type as they are, unwidened."""
        return dtype == "float32" or (dtype == "bfloat16" and self.has_bf16)


HOST_ISAS: dict[str, HostIsa] = {
    i.name: i
    for i in (
        HostIsa("portable", 4, 8, 6, 1.0),
        HostIsa("avx2", 8, 16, 6, 2.0),
        HostIsa("avx512", 16, 32, 14, 1.0),
        HostIsa("avx512_bf16", 16, 32, 14, 1.0, has_bf16=True),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostDevice:
    """The CPU of this machine, as the host model sees it.

    Cache sizes are of one core, l3_bytes of all. Bandwidths are of one core, dram_bps of all
    threads together. fma_share: multiply-adds that a core starts in a clock, against the typical of
    its instruction set (2.0: AVX-512 on two units). pair_share: rate of the instruction that
    multiplies pairs of 16-bit words against the float32 one. wake_s: until a pool thread starts on
    an item; call_s: an empty call.
    Sizes come from the system; rates are typical of the instruction set until calibrated.
    """

    name: str
    isa: str
    threads: int
    clock_hz: float
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    l1_bps: float = 200e9
    l2_bps: float = 90e9
    l3_bps: float = 35e9
    dram_bps: float = 20e9
    fma_share: float = 1.0
    pair_share: float = 1.0
    wake_s: float = 8e-6
    call_s: float = 1e-6
    source: str = "caches of /sys, flags of /proc/cpuinfo; rates typical until calibrated"

    @property
    def kernels(self) -> HostIsa:
        """What the kernels of this instruction set are made of."""
        return HOST_ISAS[self.isa]

    @property
    def fma_flops_hz(self) -> float:
        """Float32 multiply-adds a second of one core, counted as two."""
        return 2.0 * self.kernels.lanes * self.fma_per_clk * self.clock_hz

    @property
    def fma_per_clk(self) -> float:
        """Multiply-adds that a core starts in a clock."""
        return self.fma_share * self.kernels.fma_per_clk


def host_device() -> HostDevice:
    """The CPU that this process runs on: caches of /sys, flags and clock of /proc."""
    info = _cpuinfo()
    flags = set(info.get("flags", "").split())
    threads = host_threads()
    caches = _caches()
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(info.get("vendor_id", ""), "cpu")
    name = f"{vendor}_f{info.get('cpu family', '0')}m{info.get('model', '0')}_{threads}t"
    return HostDevice(
        name,
        _best_isa(flags, vendor),
        threads,
        _top_clock_hz(),
        *caches,
        fma_share=_fma_share(flags),
    )


def _top_clock_hz() -> float:
    """The clock that one core may reach; 3.5 GHz where the system does not tell."""
    path = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return float(path.read_text()) * 1e3 if path.exists() else 3.5e9


def _best_isa(flags: set[str], vendor: str) -> str:
    """The fastest that there is: Intel's cores multiply pairs of bfloat16 at half of their float32
    rate, so that there AVX-512 alone is faster (csrc/host/cpu.cc)."""
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return "avx512_bf16" if "avx512_bf16" in flags and vendor != "intel" else "avx512"
    return "avx2" if {"avx2", "fma", "f16c"} <= flags else "portable"


def _fma_share(flags: set[str]) -> float:
    """2.0 for the cores that came with AVX-512's float16: they have two units of 512 bits."""
    return 2.0 if "avx512_fp16" in flags else 1.0


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo; empty where there is none."""
    path = pathlib.Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in first)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _caches() -> tuple[int, int, int]:
    """Bytes of the first core's L1 data, L2 and L3 caches; typical ones where /sys has none."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "type").read_text().strip() != "Instruction":
            level = int((index / "level").read_text())
            sizes[level] = int((index / "size").read_text().strip().removesuffix("K")) << 10
    return sizes[1], sizes[2], sizes[3]
