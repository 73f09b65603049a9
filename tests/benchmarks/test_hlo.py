"""Reading optimised HLO: which kernels, which class, which bytes."""

import pytest

from benchmarks import hlo
from benchmarks.hlo import Kernel

HEAD = "HloModule jit_f, is_scheduled=true\n\n"
ADD = """%fused_add (p0: f32[8,4], p1: f32[4]) -> f32[8,4] {
  %p0 = f32[8,4]{1,0} parameter(0)
  %p1 = f32[4]{0} parameter(1)
  %b = f32[8,4]{1,0} broadcast(%p1), dimensions={1}
  ROOT %add = f32[8,4]{1,0} add(%p0, %b), metadata={op_name="f(x)/add"}
}

"""
SLICED = """%fused_slice (p0: f32[12,8,4], p1: s32[]) -> f32[8,4] {
  %p0 = f32[12,8,4]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %s = f32[1,8,4]{2,1,0} dynamic-slice(%p0, %p1), dynamic_slice_sizes={1,8,4}
  %c = f32[8,4]{1,0} bitcast(%s)
  %call = (f32[8,4]{1,0}, u8[256]{0}) custom-call(%c), custom_call_target="jaxpipe_cuda_launch", backend_config={names = "k\\0Asm_80\\0Amain\\0Asum"}
  ROOT %g = f32[8,4]{1,0} get-tuple-element(%call), index=0
}

"""  # noqa: E501
UPDATE = """%fused_update (p0: f32[12,4], p1: f32[1,4], p2: s32[]) -> f32[12,4] {
  %p0 = f32[12,4]{1,0} parameter(0)
  %p1 = f32[1,4]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  ROOT %u = f32[12,4]{1,0} dynamic-update-slice(%p0, %p1, %p2)
}

"""
BODY = """%body (t: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %t = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,4]{1,0} get-tuple-element(%t), index=1
  %copy.1 = f32[8,4]{1,0} copy(%x)
  ROOT %r = (s32[], f32[8,4]{1,0}) tuple(%i, %copy.1)
}

%cond (t: (s32[], f32[8,4])) -> pred[] {
  %t = (s32[], f32[8,4]{1,0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

"""


def entry(*lines: str) -> str:
    return "ENTRY %main (x: f32[8,4]) -> f32[8,4] {\n  " + "\n  ".join(lines) + "\n}\n"


def rows(text: str) -> list[Kernel]:
    return hlo.kernels(hlo.parse(HEAD + text))


X = "%x = f32[8,4]{1,0} parameter(0)"
ROOT = "ROOT %y = f32[8,4]{1,0} bitcast(%k)"


def test_a_fusion_reads_its_operands_and_writes_its_result() -> None:
    call = "%k = f32[8,4]{1,0} fusion(%x, %b), kind=kLoop, calls=%fused_add"
    (kernel,) = rows(ADD + entry(X, "%b = f32[4]{0} parameter(1)", call, ROOT))
    assert kernel == Kernel("k", "elementwise", "fusion", 128 + 16, 128, 1)


def test_a_slice_of_stacked_weights_counts_as_what_is_read_of_them() -> None:
    stacked = "%w = f32[12,8,4]{2,1,0} parameter(1)"
    call = "%k = f32[8,4]{1,0} fusion(%w, %i), kind=kCustom, calls=%fused_slice"
    (kernel,) = rows(SLICED + entry(X, stacked, "%i = s32[] parameter(2)", call, ROOT))
    assert (kernel.kind, kernel.target, kernel.launches) == ("product", hlo.OURS, 2)
    scratch = 256
    assert kernel.read_bytes == (128 + 4 + scratch) // 2
    assert kernel.written_bytes == (128 + scratch) // 2


def test_an_update_in_place_moves_only_the_update() -> None:
    old, new = "%o = f32[12,4]{1,0} parameter(1)", "%n = f32[1,4]{1,0} parameter(2)"
    call = "%k = f32[12,4]{1,0} fusion(%o, %n, %i), kind=kLoop, calls=%fused_update"
    (kernel,) = rows(UPDATE + entry(X, old, new, "%i = s32[] parameter(3)", call, ROOT))
    assert (kernel.kind, kernel.read_bytes, kernel.written_bytes) == ("copy", 16 + 4, 16)


def test_a_loops_body_counts_its_trips() -> None:
    loop = (
        "%w = (s32[], f32[8,4]{1,0}) while(%t), condition=%cond, body=%body, "
        'backend_config={"known_trip_count":{"n":"12"}}'
    )
    text = BODY + entry(X, "%c = s32[] constant(0)",
                        "%t = (s32[], f32[8,4]{1,0}) tuple(%c, %x)", loop,
                        "ROOT %k = f32[8,4]{1,0} get-tuple-element(%w), index=1")  # fmt: skip
    assert rows(text) == [Kernel("copy.1", "copy", "copy", 128, 128, 12)]


def test_scratch_of_other_custom_calls_is_no_traffic() -> None:
    call = (
        "%k = (f32[8,4]{1,0}, s8[4096]{0}) custom-call(%x, %x), "
        'custom_call_target="__cublas$lt$matmul"'
    )
    (kernel,) = rows(entry(X, call, "ROOT %y = f32[8,4]{1,0} get-tuple-element(%k), index=0"))
    assert (kernel.kind, kernel.read_bytes, kernel.written_bytes) == ("product", 256, 128)


def test_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.parse(ADD)
