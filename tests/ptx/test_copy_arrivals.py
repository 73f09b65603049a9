"""cp.async.mbarrier.arrive: finished copies of a thread arrive at an mbarrier."""

import numpy as np
import pytest

from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Buffer, Mode, run

MODES = pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=lambda m: f"{m.landing}-{m.order}")
COPY = "cp.async.ca.shared.global [%r3], [%rd2], 16;"
ARRIVE = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];"
WAIT = """
again:
  mbarrier.try_wait.parity.shared.b64 %p3, [%r4], 0;
  @!%p3 bra again;
"""
# Warp 0 copies 16 bytes a lane; warp 1 waits for the mbarrier, and writes them out.
KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry handover(.param .u64 in, .param .u64 out)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<6>;
  .shared .align 16 .b8 tile[512];
  .shared .align 8 .b8 object[8];
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 31;
  mul.lo.u32 %r2, %r1, 16;
  mov.u32 %r3, tile;
  add.u32 %r3, %r3, %r2;
  mov.u32 %r4, object;
  cvt.u64.u32 %rd0, %r2;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra ready;
  mbarrier.init.shared.b64 [%r4], {count};
ready:
  bar.sync 0;
  setp.gt.u32 %p2, %r0, 31;
  @%p2 bra consumer;
  ld.param.u64 %rd1, [in];
  add.u64 %rd2, %rd1, %rd0;
  {produce}
  ret;
consumer:
  {wait}
  ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r3];
  ld.param.u64 %rd3, [out];
  add.u64 %rd4, %rd3, %rd0;
  st.global.v4.u32 [%rd4], {{%r5, %r6, %r7, %r8}};
  ret;
}}
"""


def handover(produce: str, mode: Mode, count: int = 32, wait: str = WAIT) -> tuple[Report, bool]:
    """The report, and whether the bytes arrived."""
    given = np.random.default_rng(3).integers(0, 1 << 32, (32, 4), np.uint32)
    taken = np.zeros_like(given)
    report = run(KERNEL.format(produce=produce, count=count, wait=wait), "handover",
                 grid=(1, 1, 1), block=(64, 1, 1), mode=mode,
                 args=[given, Buffer(taken, written=False)])  # fmt: skip
    return report, bool((given == taken).all())


@MODES
def test_a_waiter_sees_the_copies(mode: Mode) -> None:
    report, arrived = handover(f"{COPY} {ARRIVE}", mode)
    assert report.ok, [h.text for h in report.hazards]
    assert arrived


@MODES
def test_without_noinc_the_arrival_pays_for_itself_only(mode: Mode) -> None:
    counted = ARRIVE.replace(".noinc", "")
    arrive = "mbarrier.arrive.shared.b64 _, [%r4];"
    report, arrived = handover(f"{COPY} {counted} {arrive}", mode)
    assert report.ok, [h.text for h in report.hazards]
    assert arrived


def test_a_wait_that_asks_once_is_noticed() -> None:
    once = "mbarrier.try_wait.parity.shared.b64 %p3, [%r4], 0;"
    modes = [Mode("late", "ascending", seed) for seed in range(8)]
    assert not all(handover(f"{COPY} {ARRIVE}", mode, wait=once)[0].ok for mode in modes)


def hazards_of(produce: str, **options: object) -> set[str]:
    """Kinds found in any mode."""
    reports = [handover(produce, mode, **options)[0] for mode in ADVERSARIAL_MODES]
    return {hazard.kind for report in reports for hazard in report.hazards}


FAULTS = {
    "no wait": ("unwritten-shared", f"{COPY} {ARRIVE}", {"wait": ""}),
    "a copy after the arrival": ("read-pending", f"{ARRIVE} {COPY}", {}),
    "an ordinary arrival": ("read-pending", f"{COPY} mbarrier.arrive.shared.b64 _, [%r4];", {}),
    "nobody arrives": ("deadlock", f"{COPY} {ARRIVE.replace('.noinc', '')}", {}),
    "a store, which the arrival does not order": (
        "read-race",
        f"{COPY.replace('16;', '8;')} st.shared.v2.u32 [%r3+8], {{%r1, %r1}}; {ARRIVE}",
        {},
    ),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_is_reported(fault: str) -> None:
    kind, produce, options = FAULTS[fault]
    assert kind in hazards_of(produce, **options)
