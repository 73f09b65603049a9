"""setmaxnreg: a block shares the registers it was launched with, and an increase waits for them."""

import pytest

from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode, run

MODES = pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=lambda m: f"{m.landing}-{m.order}")
# Three warpgroups of 168 registers a thread, if .maxnreg does not say otherwise.
KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry roles()
.maxntid 384
{limit}
{{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 128;
  @%p0 bra producer;
  setmaxnreg.inc.sync.aligned.u32 {consumer};
  ret;
producer:
  setmaxnreg.dec.sync.aligned.u32 {producer};
  ret;
}}
"""


def roles(producer: int, consumer: int, mode: Mode, limit: str = "") -> Report:
    text = KERNEL.format(producer=producer, consumer=consumer, limit=limit)
    return run(text, "roles", grid=(1, 1, 1), block=(384, 1, 1), args=[], mode=mode)


@MODES
@pytest.mark.parametrize(("producer", "consumer"), [(40, 232), (24, 240)])
def test_an_increase_waits_for_the_decrease(producer: int, consumer: int, mode: Mode) -> None:
    assert roles(producer, consumer, mode).ok


@MODES
def test_more_registers_than_at_the_launch_are_never_had(mode: Mode) -> None:
    (hazard,) = roles(32, 240, mode).hazards
    assert hazard.kind == "register-limit"
    assert "64512" in hazard.text


@MODES
def test_maxnreg_says_how_many_there_are(mode: Mode) -> None:
    assert roles(24, 176, mode, ".maxnreg 128").ok
    assert [h.kind for h in roles(24, 184, mode, ".maxnreg 128").hazards] == ["register-limit"]
