"""Which Triton kernels run in the interpreter: one TritonCase each, with a name of its own.

Data only, and no import of Triton, so that the tests have their names where it is not installed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

Style = Literal["pointers", "descriptors", "own-descriptors", "layouts", "ring"]
Multiples = Literal["all", "strides", "none"]
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int8": 1,
                 "float8_e4m3fn": 1, "float8_e5m2": 1}  # fmt: skip
_SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "int8": "s8", "int32": "s32",
          "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TritonCase:
    """One kernel of triton_kernels.py and how it is compiled.

    block is (block_m, block_n, block_k). multiples: what the compiler is told to be a multiple of
    16, all sizes and leading dimensions, the leading dimensions only, or nothing at all. precision
    matters for float32 operands. swizzle is that of a and b, in bytes, where the source chooses it.
    """

    arch: int
    style: Style = "pointers"
    dtype: str = "bfloat16"
    out_dtype: str = ""
    accumulator: str = ""
    block: tuple[int, int, int] = (64, 64, 32)
    a_transposed: bool = False
    b_transposed: bool = False
    a_scaled: bool = False
    stages: int = 3
    warps: int = 4
    specialized: bool = False
    precision: Literal["tf32", "tf32x3", "ieee"] = "tf32"
    multiples: Multiples = "all"
    swizzle: tuple[int, int] = (128, 128)

    @property
    def result_dtype(self) -> str:
        """dtype of the stored result."""
        return self.out_dtype or ("int32" if self.dtype == "int8" else self.dtype)

    @property
    def sum_dtype(self) -> str:
        """dtype in which products are added up."""
        return self.accumulator or ("int32" if self.dtype == "int8" else "float32")

    @property
    def name(self) -> str:
        """`sm80-pointers-bf16-64x64x32-nt-s3-w4`, then what is special."""
        layout = "nt"[self.a_transposed] + "nt"[self.b_transposed]
        block = "x".join(map(str, self.block))
        words = [f"sm{self.arch}", self.style, _SHORT[self.dtype], block, layout]
        words += [f"s{self.stages}", f"w{self.warps}"]
        words += [f"to-{_SHORT[self.result_dtype]}"] if self.out_dtype else []
        words += [f"sum-{_SHORT[self.sum_dtype]}"] if self.accumulator else []
        words += [self.precision] if self.dtype == "float32" else []
        words += ["a-scaled"] if self.a_scaled else []
        words += ["specialized"] if self.specialized else []
        has_pointers = self.style == "pointers"
        words += [f"multiples-{self.multiples}"] if has_pointers and self.multiples != "all" else []
        words += (
            [f"swizzle-{self.swizzle[0]}-{self.swizzle[1]}"]
            if self.style in ("layouts", "ring")
            else []
        )
        return "-".join(words)


def _majors(case: TritonCase) -> list[TritonCase]:
    """The case with both transposes of each operand."""
    return [
        dataclasses.replace(case, a_transposed=a, b_transposed=b)
        for a in (False, True)
        for b in (False, True)
    ]


def _ampere() -> list[TritonCase]:
    base = TritonCase(80)
    f16 = dataclasses.replace(base, dtype="float16")
    f32 = dataclasses.replace(base, dtype="float32")
    s8 = dataclasses.replace(base, dtype="int8", block=(64, 64, 64))
    cases = [c for s in range(1, 6) for c in _majors(dataclasses.replace(base, stages=s))]
    cases += [c for s in (2, 4) for c in _majors(dataclasses.replace(f16, stages=s))]
    cases += [c for s in (1, 3, 5) for c in _majors(dataclasses.replace(f32, stages=s))]
    cases += [c for s in (2, 4) for c in _majors(dataclasses.replace(s8, stages=s))]
    cases += _majors(dataclasses.replace(base, a_scaled=True))
    cases += _majors(dataclasses.replace(base, multiples="none"))
    cases += _majors(dataclasses.replace(base, multiples="strides", block=(64, 32, 64)))
    cases += [
        dataclasses.replace(base, block=block, warps=warps, stages=stages)
        for block, warps, stages in (
            ((128, 128, 64), 4, 4), ((128, 128, 32), 8, 3), ((128, 64, 64), 4, 3),
            ((64, 128, 32), 8, 4), ((32, 32, 64), 2, 5), ((16, 64, 64), 1, 3),
        )
    ]  # fmt: skip
    cases += [
        dataclasses.replace(f16, accumulator="float16"),
        dataclasses.replace(f16, out_dtype="float32"),
        dataclasses.replace(base, out_dtype="float32"),
        dataclasses.replace(f32, precision="tf32x3"),
        dataclasses.replace(f32, precision="ieee", block=(32, 32, 32)),
    ]
    return cases


def _hopper_pointers() -> list[TritonCase]:
    base = TritonCase(90, block=(128, 128, 64))
    f16 = dataclasses.replace(base, dtype="float16", block=(128, 64, 64))
    f32 = dataclasses.replace(base, dtype="float32", block=(64, 64, 32))
    cases = []
    for block in ((128, 128, 16), (128, 128, 32), (128, 128, 64), (64, 64, 128)):
        cases += _majors(dataclasses.replace(base, block=block))
    cases += [dataclasses.replace(base, stages=s, block=(64, 128, 64)) for s in (1, 2, 4, 5)]
    cases += [dataclasses.replace(base, block=(64, n, 64), b_transposed=t)
              for n in (8, 16, 32) for t in (False, True) if n > 8 or t]  # fmt: skip
    cases += [dataclasses.replace(base, a_scaled=True, b_transposed=t) for t in (False, True)]
    cases += [dataclasses.replace(base, multiples="none", b_transposed=t) for t in (False, True)]
    cases += [
        dataclasses.replace(base, multiples="strides"),
        dataclasses.replace(base, stages=4, warps=8),
        dataclasses.replace(base, warps=8, block=(128, 256, 64)),
        f16,
        dataclasses.replace(f16, a_scaled=True, a_transposed=True),
        dataclasses.replace(f16, accumulator="float16"),
        dataclasses.replace(f32, b_transposed=True),
        f32,
        dataclasses.replace(f32, precision="tf32x3", b_transposed=True),
    ]
    for dtype, k in (("float8_e4m3fn", 64), ("float8_e5m2", 128), ("int8", 64), ("int8", 128)):
        out = "" if dtype == "int8" else "float32"
        cases += [TritonCase(90, dtype=dtype, out_dtype=out, block=(64, 64, k), b_transposed=t)
                  for t in (False, True)]  # fmt: skip
    return cases


def _hopper_descriptors(style: Style) -> list[TritonCase]:
    base = TritonCase(90, style, block=(128, 128, 64), multiples="strides")
    small = dataclasses.replace(base, block=(64, 64, 64))
    narrow = dataclasses.replace(base, block=(64, 64, 128), b_transposed=True)
    cases = []
    for k in (16, 32, 64):
        cases += _majors(dataclasses.replace(small, block=(64, 64, k)))
    cases += [dataclasses.replace(base, stages=s, b_transposed=True) for s in (1, 2, 4, 5)]
    cases += [
        dataclasses.replace(base, warps=8, block=(128, 256, 64), b_transposed=True),
        dataclasses.replace(base, a_scaled=True, b_transposed=True),
        dataclasses.replace(base, a_scaled=True, a_transposed=True),
        dataclasses.replace(small, dtype="float16"),
        dataclasses.replace(small, out_dtype="float32", b_transposed=True),
        dataclasses.replace(small, dtype="float32", block=(64, 64, 32), b_transposed=True),
        dataclasses.replace(narrow, dtype="float8_e4m3fn", out_dtype="float32"),
        dataclasses.replace(narrow, dtype="int8", block=(64, 64, 64)),
        *_specialized(style),
    ]
    return cases


def _specialized(style: Style) -> list[TritonCase]:
    """Roles for warps: Triton 3.9 makes them for 4 warps, of host descriptors up to 64 rows."""
    rows = 64 if style == "descriptors" else 128
    base = TritonCase(90, style, block=(rows, 64, 64), specialized=True, multiples="strides")
    k_major = dataclasses.replace(base, b_transposed=True)
    return [
        *_majors(base),
        *(dataclasses.replace(k_major, block=(rows, 128, 64), stages=s) for s in (2, 4, 5)),
        dataclasses.replace(k_major, block=(rows, 64, 32)),
        dataclasses.replace(k_major, dtype="float16"),
        dataclasses.replace(k_major, dtype="float32", block=(64, 64, 32)),
        dataclasses.replace(k_major, a_scaled=True),
    ]


def _hopper_layouts() -> list[TritonCase]:
    base = TritonCase(
        90, "layouts", out_dtype="float32", block=(64, 64, 64), stages=1, multiples="none"
    )
    cases = []
    for width in (32, 64, 128):
        cases += _majors(dataclasses.replace(base, swizzle=(width, width)))
        cases += _majors(dataclasses.replace(base, swizzle=(width, width), block=(128, 128, 64)))
    cases += [
        c
        for pair in ((32, 64), (128, 32))
        for c in _majors(dataclasses.replace(base, swizzle=pair))
    ]
    cases += [dataclasses.replace(base, block=(64, 256, 32), swizzle=(64, 128))]
    k_major = dataclasses.replace(base, b_transposed=True)
    narrow = dataclasses.replace(k_major, dtype="float8_e4m3fn", block=(64, 64, 128))
    wide = dataclasses.replace(k_major, dtype="float32")
    cases += [dataclasses.replace(case, swizzle=(width, width))
              for case in (narrow, wide) for width in (32, 64, 128)]  # fmt: skip
    return cases


def _hopper_rings() -> list[TritonCase]:
    base = TritonCase(90, "ring", out_dtype="float32", swizzle=(64, 64))
    cases = [dataclasses.replace(base, stages=s, block=(64, 32, 32)) for s in (2, 3, 4, 5)]
    cases += [
        dataclasses.replace(base, block=(128, 64, 64), swizzle=(128, 128)),
        dataclasses.replace(base, dtype="float16", block=(64, 64, 64), swizzle=(128, 64)),
    ]
    return cases


CASES: tuple[TritonCase, ...] = (
    *_ampere(),
    *_hopper_pointers(),
    *_hopper_descriptors("descriptors"),
    *_hopper_descriptors("own-descriptors"),
    *_hopper_layouts(),
    *_hopper_rings(),
)
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), "two cases have one name"

# Kernels that PTX itself does not allow, and the hazard that they have; all others have none.
#
# Triton 3.9 unpacks float16 accumulators (mov.b32 {%rs, %rs}, %r) between wgmma.commit_group and
# wgmma.wait_group 0. PTX ISA, wgmma.wait_group: touching them before the wait is undefined. Here it
# gives wrong numbers; ptxas may happen to wait earlier. float32 accumulators are not unpacked.
FINDINGS = {"sm90-pointers-f16-128x64x64-nn-s3-w4-sum-f16": "wgmma-register"}
