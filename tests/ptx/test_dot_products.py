"""dp4a, dp2a and integer mma against numpy: all signs, wrapping and saturation."""

import numpy as np
import pytest

from jaxpipe.errors import PtxError
from jaxpipe.ptx.run import run

LANES = 32
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
LANE_BY_LANE = (
    HEAD
    + """
.visible .entry dot(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd0, %r0, 4;
  ld.param.u64 %rd1, [a];
  add.u64 %rd1, %rd1, %rd0;
  ld.global.u32 %r1, [%rd1];
  ld.param.u64 %rd2, [b];
  add.u64 %rd2, %rd2, %rd0;
  ld.global.u32 %r2, [%rd2];
  ld.param.u64 %rd3, [c];
  add.u64 %rd3, %rd3, %rd0;
  ld.global.u32 %r3, [%rd3];
  {opcode} %r4, %r1, %r2, %r3;
  ld.param.u64 %rd4, [d];
  add.u64 %rd4, %rd4, %rd0;
  st.global.u32 [%rd4], %r4;
  ret;
}}
"""
)
# Every lane's A is 0x7f7f7f7f, B alike: each product sum is 32 * 127 * 127.
MMA = (
    HEAD
    + """
.visible .entry product(.param .u64 c, .param .u64 d)
{{
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd0, %r0, 16;
  ld.param.u64 %rd1, [c];
  add.u64 %rd1, %rd1, %rd0;
  ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd1];
  mov.u32 %r5, {a};
  mov.u32 %r6, 2139062143;
  mma.sync.aligned.m16n8k32.row.col{mode}.s32.s8.s8.s32
    {{%r1, %r2, %r3, %r4}}, {{%r5, %r5, %r5, %r5}}, {{%r6, %r6}}, {{%r1, %r2, %r3, %r4}};
  ld.param.u64 %rd2, [d];
  add.u64 %rd2, %rd2, %rd0;
  st.global.v4.u32 [%rd2], {{%r1, %r2, %r3, %r4}};
  ret;
}}
"""
)


def parts(words: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    return words.view(np.dtype(f"{'i' if signed else 'u'}{bits // 8}")).reshape(LANES, -1)


def dot(opcode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    d = np.zeros(LANES, np.uint32)
    report = run(LANE_BY_LANE.format(opcode=opcode), "dot", grid=(1, 1, 1), block=(LANES, 1, 1),
                 args=[a, b, c, d])  # fmt: skip
    assert report.ok
    return d


@pytest.mark.parametrize("b_type", ["s32", "u32"])
@pytest.mark.parametrize("a_type", ["s32", "u32"])
@pytest.mark.parametrize("name", ["dp4a", "dp2a.lo", "dp2a.hi"])
def test_a_packed_dot_product(name: str, a_type: str, b_type: str) -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.integers(0, 1 << 32, (3, LANES), np.uint32)
    halves = name.startswith("dp2a")
    left = parts(a, 16 if halves else 8, a_type == "s32").astype(np.int64)
    right = parts(b, 8, b_type == "s32").astype(np.int64)
    taken = {"dp4a": slice(0, 4), "dp2a.lo": slice(0, 2), "dp2a.hi": slice(2, 4)}[name]
    expected = (c.astype(np.int64) + (left * right[:, taken]).sum(1)) % (1 << 32)
    np.testing.assert_array_equal(dot(f"{name}.{a_type}.{b_type}", a, b, c), expected)


@pytest.mark.parametrize("opcode", ["dp2a.u32.u32", "dp4a.lo.u32.u32", "dp4a.b32.u32"])
def test_a_dot_product_that_does_not_exist_is_refused(opcode: str) -> None:
    zero = np.zeros(LANES, np.uint32)
    with pytest.raises(PtxError, match=r"dp2a needs|unknown modifier|are \.s32 or"):
        dot(opcode, zero, zero, zero)


@pytest.mark.parametrize("a", [0x7F7F7F7F, 0x81818181], ids=["positive", "negative"])
@pytest.mark.parametrize("mode", ["", ".satfinite"])
def test_an_integer_product_wraps_or_saturates(mode: str, a: int) -> None:
    limits = np.iinfo(np.int32)
    rng = np.random.default_rng(7)
    c = rng.choice(np.array([limits.min, -5, 0, limits.max], np.int32), (LANES, 4))
    d = np.zeros_like(c)
    report = run(MMA.format(mode=mode, a=a), "product", grid=(1, 1, 1), block=(LANES, 1, 1),
                 args=[c, d])  # fmt: skip
    assert report.ok
    exact = c.astype(np.int64) + (1 if a == 0x7F7F7F7F else -1) * 32 * 127 * 127
    clamped = np.clip(exact, limits.min, limits.max)
    np.testing.assert_array_equal(d, clamped if mode else exact.astype(np.int32))
