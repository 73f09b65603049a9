"""The instruction table of the mma.sync family: what each row multiplies and how it is called.

In: an operand dtype and a target. Out: the row, or a reason. The wrappers' CUDA text is printed
from the rows, so an instruction exists in one place. Source: PTX ISA, mma.sync fragment layouts.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.dtypes import DTYPES
from jaxpipe.errors import UnsupportedError
from jaxpipe.target import Arch


@dataclass(frozen=True, slots=True)
class MmaInstruction:
    """One m16n8 instruction: 32 bytes of k a row of either operand.

    operand: the dtype of problem.DTYPES that it takes; ptx: the word for it in the opcode; needs:
    the capability (field of Arch) that a target must have, "" for all.
    """

    operand: str
    ptx: str
    k: int
    needs: str = ""

    @property
    def name(self) -> str:
        """Name of the wrapper, such as mma_m16n8k16_bf16."""
        return f"mma_m16n8k{self.k}_{self.ptx}"

    @property
    def accumulator(self) -> str:
        """C type of the four accumulators."""
        return "int" if DTYPES[self.operand].accumulator == "int32" else "float"

    def wrapper(self) -> str:
        """CUDA text of the wrapper: d += a * b on one 16x8 tile."""
        d = "s32" if self.accumulator == "int" else "f32"
        opcode = f"mma.sync.aligned.m16n8k{self.k}.row.col"
        constraint = "r" if self.accumulator == "int" else "f"
        outs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(4))
        return f"""\
// d += a * b on one 16x8 tile of results, {self.k} deep; PTX ISA, mma.sync.
__device__ __forceinline__ void {self.name}({self.accumulator} (&d)[4], const unsigned (&a)[4],
                                            unsigned b0, unsigned b1) {{
  asm volatile("{opcode}.{d}.{self.ptx}.{self.ptx}.{d} "
               "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : {outs}
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
"""


MMA: dict[str, MmaInstruction] = {
    i.operand: i
    for i in (
        MmaInstruction("bfloat16", "bf16", 16, needs="has_mma_bf16"),
        MmaInstruction("float16", "f16", 16),
        MmaInstruction("float32", "tf32", 8),
        MmaInstruction("int8", "s8", 32),
        MmaInstruction("float8_e4m3fn", "e4m3", 32, needs="has_mma_fp8"),
        MmaInstruction("float8_e5m2", "e5m2", 32, needs="has_mma_fp8"),
    )
}
for _row in MMA.values():
    assert _row.k * DTYPES[_row.operand].size_bytes == 32, f"{_row.name} does not take 32 bytes"


def mma_of(dtype: str, arch: Arch) -> MmaInstruction:
    """The row for operands of `dtype`; UnsupportedError when the target has no such unit."""
    row = MMA.get(dtype)
    if row is None:
        raise UnsupportedError(f"no mma.sync takes {dtype}: it takes {', '.join(MMA)}")
    if row.needs and not getattr(arch, row.needs):
        raise UnsupportedError(f"{arch.name} has no tensor-core products of {dtype}")
    return row
