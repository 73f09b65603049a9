"""Measures what the models need to know of the machine at hand: `doctor --calibrate`.

In: nothing, or a visible GPU. Out: fields of HostDevice and Device, measured. A few seconds each;
run it on an idle machine. The host side measures with numpy copies and csrc/host's own burst of
multiply-adds, the GPU side with programs that XLA compiles. It must not know schedules.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

from jaxpipe import _native
from jaxpipe.model import calibration
from jaxpipe.runtime import device
from jaxpipe.target import Device, HostDevice, host_device

BURST_S = 0.2
COPY_S = 0.1
LARGE_BYTES = 256 << 20


def calibrate() -> dict[str, dict[str, float]]:
    """Measure the host and every kind of visible GPU, store it, and give it by device name."""
    host = host_device()
    found = {host.name: measure_host(host)}
    for gpu in device.visible_gpus():
        row = device.resolve([gpu])
        if row.name not in found:
            found[row.name] = measure_gpu(row, gpu)
    for name, measured in found.items():
        calibration.store(name, measured)
    return found


# ------------------------------------------------------------------ the host
def measure_host(host: HostDevice) -> dict[str, float]:
    """Clock under multiply-adds, bandwidths of a core from L2 and L3, of memory by all threads.

    (A copy inside L1 is too short to be timed from Python.)
    """
    return {
        "clock_hz": clock_under_load_hz(host),
        "l2_bps": _copy_bps(host.l2_bytes // 4),
        "l3_bps": _copy_bps(max(host.l3_bytes // 8, 2 * host.l2_bytes)),
        "dram_bps": _memory_bps(host.threads),
    }


def clock_under_load_hz(host: HostDevice) -> float:
    """The clock of one core that does nothing but multiply-adds, as many a clock as it starts."""
    return host.clock_hz * _native.host_peak_flops(BURST_S, 1, host.isa) / host.fma_flops_hz


def _copy_bps(size: int) -> float:
    """Bytes per second read and written by one core that copies `size` bytes to `size` others."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    return 2 * size / _seconds(lambda: np.copyto(target, source))


def _memory_bps(threads: int) -> float:
    """Bytes per second read and written by all threads together, far outside the caches."""
    share = LARGE_BYTES // threads
    pairs = [(np.ones(share, np.uint8), np.empty(share, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))

        return 2 * share * threads / _seconds(copy)


def _seconds(run: Callable[[], object]) -> float:
    """Fastest of repeated runs, for about COPY_S seconds and at least three runs."""
    run()
    best, end, runs = float("inf"), time.perf_counter() + COPY_S, 0
    while runs < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


# ------------------------------------------------------------------ a GPU
def measure_gpu(row: Device, gpu: jax.Device) -> dict[str, float]:
    """Share of the data sheet's memory bandwidth, L2 bandwidth, and cost of a launch."""
    small = _increments_s(gpu, 1024)
    inside = int(row.l2_kept * row.l2_bytes) // 4
    in_l2 = _increments_s(gpu, inside)
    outside = _increments_s(gpu, 4 * row.l2_bytes)
    return {
        "dram_share": min(1.0, 2 * 4 * row.l2_bytes / outside / row.dram_bps),
        "l2_bps": 2 * inside / max(in_l2 - small, 1e-9),
        "launch_s": small,
    }


def _increments_s(gpu: jax.Device, size_bytes: int, count: int = 50) -> float:
    """Seconds of one kernel that reads and writes `size_bytes`, in a row of `count`."""
    with jax.default_device(gpu):
        x = jnp.zeros(size_bytes // 4, jnp.float32)

    @jax.jit  # type: ignore[untyped-decorator]
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = jax.lax.optimization_barrier(x + 1)
        return x

    return _seconds(lambda: jax.block_until_ready(chain(x))) / count
