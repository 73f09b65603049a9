"""Small schedules of both kernel families for the cases of the executor contract.

Interpreters and GPUs run the same kernels: what was proven is what is measured.
"""

from __future__ import annotations

from jaxpipe.dtypes import DTYPES
from jaxpipe.legality import check
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch

NO_FP8 = {"*float8*": "has no tensor-core products of float8"}
K_MAJOR = "is not contiguous along k"
CHANNELS = "TMA needs rows of 16 bytes"
ONE_BYTE = ("int8", "float8_e4m3fn", "float8_e5m2")
REFUSED_BY_WGMMA = {
    **{f"layout: {w} {d}": K_MAJOR for w in ("nn", "tn", "tt") for d in ("float32", *ONE_BYTE)},
    **{f"conv: {d}": K_MAJOR for d in ("float32", *ONE_BYTE)},
    "dtype: int8 -> bfloat16": "s32 sums are stored as int32 or float32",
    "conv: 3 channels": CHANNELS,
    "conv: 20 to 9 channels": CHANNELS,
}


def ampere(problem: Problem) -> GpuSchedule:
    """Tiles so small that most cases have several; 64 bytes of k, three stages."""
    size = DTYPES[problem.dtype].size_bytes
    return GpuSchedule(block_m=32, block_n=32, block_k=64 // size, warps_m=1, smem_stages=3)


def hopper(problem: Problem) -> GpuSchedule:
    """The same for warpgroups; by TMA where the addresses allow it, else by cp.async."""
    size = DTYPES[problem.dtype].size_bytes
    by_tma = GpuSchedule(
        family="hopper", block_m=64, block_n=64, block_k=128 // size, consumers=1, smem_stages=3,
        persistent_blocks=2,
    )  # fmt: skip
    by_threads = GpuSchedule.parse("tma=0", by_tma)
    legal = (s for s in (by_tma, by_threads) if not check(s, problem, arch("sm_90a")))
    return next(legal, by_tma)
