"""The steps of a Store as CUDA text: from accumulators in a row to rounded results.

In: a fused Store of a lowered nest. Out: a lambda `finish(x, row, column)` that applies the steps
to a vector of neighbouring results and writes it. All arithmetic is in the accumulator's type
(float; int where operands and results are integers), and only the writes round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxpipe.codegen.text import UNROLL, expression, indented, plus
from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.affine import Affine, var
from jaxpipe.ir.nodes import Buffer, Region, Step, Store

CUDA_TYPES: dict[str, str] = {
    "float32": "float",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "int32": "int",
    "int8": "signed char",
}
FUNCTIONS: dict[str, str] = {
    "relu": "relu",
    "gelu_tanh": "gelu_tanh",
    "gelu_erf": "gelu_erf",
    "silu": "silu",
    "tanh": "tanhf",
}
DERIVATIVES: dict[str, str] = {
    f"derivative_{name}": f"{name}_derivative"
    for name in ("relu", "gelu_tanh", "gelu_erf", "silu", "tanh")
}
INTEGER_STEPS = ("add", "relu", "save")
VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Finish:
    """A Store, the buffers by name, and how many neighbours one lane finishes at once."""

    store: Store
    buffers: Mapping[str, Buffer]
    vector: int

    @property
    def out(self) -> Buffer:
        """The result."""
        return self.buffers[self.store.dst.buffer]

    @property
    def accumulator(self) -> str:
        """C type of the accumulators."""
        return CUDA_TYPES[self.buffers[self.store.src.buffer].dtype]

    @property
    def value(self) -> str:
        """C type that the steps compute in."""
        touched = [self.out, *(self.buffers[o.buffer] for o in self._operands())]
        all_whole = all(not DTYPES[b.dtype].is_float for b in touched)
        simple = all(s.op in INTEGER_STEPS for s in self.store.steps)
        return "int" if self.accumulator == "int" and all_whole and simple else "float"

    def _operands(self) -> list[Region]:
        return [s.operand for s in self.store.steps if s.operand is not None]

    @property
    def is_heavy(self) -> bool:
        """True when a step is long enough that unrolling it many times would bloat the code."""
        light = ("relu", "derivative_relu")
        return any(
            s.op in (*FUNCTIONS, *DERIVATIVES) and s.op not in light for s in self.store.steps
        )

    def lines(self) -> list[str]:
        """The lambda."""
        body = [line for step in self.store.steps for line in self._step(step)]
        dst = self._address(self.store.dst)
        body.append(f"store_vector<{self.vector}>({dst}, x);")
        return [
            f"auto finish = [&]({self.value} (&x)[{self.vector}], int row, int column) {{",
            *indented(body),
            "};",
        ]

    def _step(self, step: Step) -> list[str]:
        match step:
            case Step("scale", None, alpha):
                return self._each(f"x[e] *= {alpha!r}f")
            case Step("save", Region() as operand):
                return [f"store_vector<{self.vector}>({self._address(operand)}, x);"]
            case Step("add", Region() as operand):
                return self._with(operand, "x[e] += {}")
            case Step(op, Region() as operand) if op in DERIVATIVES:
                return self._with(operand, f"x[e] *= {DERIVATIVES[op]}({{}})")
            case Step(op) if op in FUNCTIONS:
                return self._each(f"x[e] = {FUNCTIONS[op]}(x[e])")
            case _:
                raise NotImplementedError(f"no CUDA text for step {step.op}")

    def _each(self, text: str) -> list[str]:
        return [UNROLL, f"for (int e = 0; e < {self.vector}; ++e) {text};"]

    def _with(self, operand: Region, text: str) -> list[str]:
        """`text` for each element, with that element of `operand` in its braces."""
        buffer = self.buffers[operand.buffer]
        name = f"{buffer.name}_values"
        if "n" not in buffer.axes:  # one value a row
            return [
                f"{self.value} {name};",
                f"convert({name}, *({self._address(operand)}));",
                *self._each(text.format(name)),
            ]
        return [
            f"{self.value} {name}[{self.vector}];",
            f"load_vector<{self.vector}>({name}, {self._address(operand)});",
            *self._each(text.format(f"{name}[e]")),
        ]

    def _address(self, region: Region) -> str:
        """Pointer to the vector: batch and split indices from the region, row and column given."""
        buffer = self.buffers[region.buffer]
        place = {"m": var("row"), "n": var("column")}
        offset = Affine()
        for axis, start, stride in zip(buffer.axes, region.starts, buffer.strides, strict=True):
            offset += place.get(axis, start) * stride
        return plus(buffer.name, expression(offset, wide=len(buffer.axes) > 1))


def inside_text(finish: Finish, ranges_hold: tuple[bool, bool]) -> str:
    """The condition that a vector lies inside the result; ranges_hold: rows, columns always do."""
    m, n = finish.out.extent("m"), finish.out.extent("n")
    parts = [] if ranges_hold[0] else [f"row < {m}"]
    parts += [] if ranges_hold[1] else [f"column < {n}"]
    return " && ".join(parts)
