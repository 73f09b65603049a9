"""Deliberately broken Hopper kernels: the interpreter must see every fault."""

import pytest

from jaxpipe.compiler import emit_kernel
from jaxpipe.epilogue import Epilogue
from jaxpipe.problem import Layout, Matmul
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode
from jaxpipe.schedule import GpuSchedule
from jaxpipe.toolchain import nvrtc
from tests.codegen.hopper_points import SM_90A
from tests.codegen.hopper_runs import run_kernel

PROBLEM = Matmul(64 * 5, 128, 64 * 4 - 8, rhs=Layout(True), epilogue=Epilogue(bias="column"))
RING = "family=hopper,block_m=64,block_n=128,block_k=64,smem_stages=3,persistent_blocks=1"
COOPERATIVE, PING_PONG = f"{RING},consumers=1", f"{RING},consumers=2,ping_pong=1"
COPYING = f"{RING},consumers=1,tma=0"

EMPTY_WAIT = "mbarrier_wait_parity(empty + 8 * ring.slot, ring.phase ^ 1);"
LAST_RELEASE = "  if (lane == 0) mbarrier_arrive(empty + 8 * previous);"
BYTES = "(filled, kAStage + kBStage)"
PANEL_WAIT = "if (leader) bulk_wait_group_read<0>();  // frees"
COPY_FENCE = "fence_proxy_async();\n          mbarrier_arrive"

# name -> (schedule, what is in the right kernel, what replaces it)
FAULTS: dict[str, tuple[str, str, str]] = {
    "no empty wait": (COOPERATIVE, EMPTY_WAIT, ""),
    "empty wait of the other parity": (COOPERATIVE, "ring.phase ^ 1);", "ring.phase);"),
    "no full wait": (COOPERATIVE, "mbarrier_wait_parity(full + 8 * ring.slot, ring.phase);", ""),
    "too few bytes": (COOPERATIVE, BYTES, "(filled, kAStage)"),
    "too many bytes": (COOPERATIVE, BYTES, "(filled, kAStage + kBStage + 16)"),
    "no wgmma fence": (COOPERATIVE, "      wgmma_fence();", ""),
    "release before the wait": (COOPERATIVE, "wgmma_wait_group<1>();", "wgmma_wait_group<2>();"),
    "no final wait": (COOPERATIVE, "wgmma_wait_group<0>();", ""),
    "no last release": (COOPERATIVE, LAST_RELEASE, ""),
    "no proxy fence before the store": (COOPERATIVE, "          fence_proxy_async();", ""),
    "no wait for the panel": (COOPERATIVE, PANEL_WAIT, "// frees"),
    "no barrier before the store": (COOPERATIVE, "          bar_sync_group(warpgroup);", ""),
    "no initial barrier": (COOPERATIVE, "  __syncthreads();", ""),
    "no turn": (PING_PONG, "mbarrier_wait_parity(my_turn, turn);", ""),
    "other group's slots not skipped": (PING_PONG, "ring.skip(4);  // the other", "// the other"),
    "no proxy fence after cp.async": (COPYING, COPY_FENCE, "mbarrier_arrive"),
    "cp.async not waited for": (COPYING, "cp_async_wait_group<1>();", ""),
}


def is_seen(source_text: str, kernel: object, mode: Mode) -> bool:
    """True when the run reports a hazard or gives wrong results."""
    try:
        return bool(run_kernel(kernel, source_text, mode).hazards)  # type: ignore[arg-type]
    except AssertionError:
        return True


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_kernel_is_seen(name: str) -> None:
    text, right, wrong = FAULTS[name]
    kernel = emit_kernel(PROBLEM, GpuSchedule.parse(text), SM_90A)
    body = kernel.source.index('extern "C"')
    head, tail = kernel.source[:body], kernel.source[body:]
    assert right in tail, f"{name}: the kernel has no such line"
    ptx = nvrtc.compile(head + tail.replace(right, wrong), "sm_90a").ptx
    assert any(is_seen(ptx, kernel, mode) for mode in ADVERSARIAL_MODES), name
