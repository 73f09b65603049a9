"""Small CUDA kernels of the tests' own, with named faults, and how they are compiled and run.

Written apart from jaxpipe.codegen on purpose: what tests the interpreter must not change with the
code generator.
"""

from __future__ import annotations

import functools
import pathlib

import numpy as np

from jaxpipe.ptx.nodes import Module
from jaxpipe.ptx.parse import parse
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import Buffer, Mode, run
from jaxpipe.toolchain import nvrtc

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 32
STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * 2

# name of the fault -> (what is in the correct kernel, what replaces it)
FAULTS_SM80: dict[str, tuple[str, str]] = {
    "wait one group too few": ("wait_group<STAGES - 2>();", "wait_group<STAGES - 1>();"),
    "no wait": ("wait_group<STAGES - 2>();", ""),
    "no barrier": ("__syncthreads();  // landed", ""),
    "barrier before the wait": (
        "wait_group<STAGES - 2>();\n    __syncthreads();  // landed",
        "__syncthreads();\n    wait_group<STAGES - 2>();",
    ),
    "copy before the barrier": (
        "wait_group<STAGES - 2>();\n    __syncthreads();  // landed",
        "wait_group<STAGES - 2>();\n    if (t + STAGES - 1 < trips) load(t + STAGES - 1);\n"
        "    __syncthreads();",
    ),
    "wrong stage": ("from = base + (t % STAGES)", "from = base + ((t + 1) % STAGES)"),
    "commit only real copies": ("if (t + STAGES - 1 < trips) load(t + STAGES - 1);\n    commit();",
                                "if (t + STAGES - 1 < trips) { load(t + STAGES - 1); commit(); }"),
}  # fmt: skip

_CUDA = pathlib.Path(__file__).parent / "cuda"


def cuda_source(name: str, defines: dict[str, int]) -> str:
    """The text of a kernel file with its definitions in front."""
    head = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    return head + (_CUDA / name).read_text()


def gemm_sm80(fault: str = "", stages: int = 3, swizzled: bool = True) -> str:
    """A 64x64x32 bf16 product with a cp.async pipeline; n and k multiples of 8."""
    defines = {"STAGES": stages, "STAGE": STAGE_BYTES, "SWIZZLED": int(swizzled)}
    source = cuda_source("gemm_sm80.cu", defines)
    if fault:
        right, wrong = FAULTS_SM80[fault]
        assert source.count(right) == 1, fault
        source = source.replace(right, wrong)
    return source


@functools.cache
def module_of(source: str, target: str = "sm_80") -> Module:
    """The parsed PTX of `source`, with line information."""
    return parse(nvrtc.compile(source, target, (*nvrtc.FLAGS, nvrtc.LINE_INFO)).ptx)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16, rounded to nearest even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def run_gemm_sm80(module: Module, m: int, n: int, k: int, mode: Mode, **options: object
                  ) -> tuple[Report, float]:  # fmt: skip
    """The report, and the largest error relative to the largest result."""
    rng = np.random.default_rng(m * 7 + n * 3 + k)
    a = to_bf16(rng.standard_normal((m, k)))
    b = to_bf16(rng.standard_normal((k, n)))
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // BLOCK_N), -(-m // BLOCK_M), 1)
    report = run(module, "gemm", grid=grid, block=(128, 1, 1), shared_bytes=5 * STAGE_BYTES,
                 args=[a, b, Buffer(c, written=False), m, n, k], mode=mode, **options)  # fmt: skip
    expected = from_bf16(a).astype(np.float64) @ from_bf16(b)
    return report, float(np.abs(c - expected).max() / np.abs(expected).max())
