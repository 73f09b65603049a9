"""The second launch of split-K: partial sums added in fixed order, then the epilogue.

In: the reduction's nest and the Geometry. Out: CUDA text and its launch, one thread a result.
"""

from __future__ import annotations

from jaxpipe.codegen.hopper_epilogue import (
    Output,
    finish_functions,
    operands,
    outputs,
    value_type,
)
from jaxpipe.codegen.hopper_nest import Results, results_of
from jaxpipe.codegen.hopper_source import ELEMENT_TYPES
from jaxpipe.geometry_hopper import Geometry
from jaxpipe.ir.nodes import Buffer, Func
from jaxpipe.kernel import Launch, Pointer

ENTRY = "jaxpipe_hopper_reduce"
THREADS = 256


def reduction(g: Geometry, func: Func) -> tuple[str, Launch]:
    """Kernel text and launch of the nest that sums the partials of `g`."""
    results, p = results_of(func), g.problem
    workspace = next(b for b in func.params if b.role == "workspace")
    stored = [output.buffer for output in outputs(results)]
    read = [workspace, *operands(results)]
    parameters = [_parameter(b, "const ") for b in read] + [_parameter(b, "") for b in stored]
    count = p.batch_size * p.m * p.n
    kind = value_type(g, p.out_dtype)
    lines = "".join(_stored(g, results, output) for output in outputs(results))
    text = f"""\
{finish_functions(kind, results)}
// Adds the partial sums of each result in the order of the splits, then finishes it.
extern "C" __global__ void __launch_bounds__({THREADS}) {ENTRY}(
    {", ".join(parameters)}) {{
  constexpr long long kResults = {count}ll;
  const long long at = (long long)blockIdx.x * {THREADS} + threadIdx.x;
  if (at >= kResults) return;
  {ELEMENT_TYPES[workspace.dtype]} sum = workspace[at];
#pragma unroll
  for (int split = 1; split < kSplits; ++split) sum += workspace[split * kResults + at];
{lines}}}
"""
    params = tuple(Pointer(b.role) for b in (*read, *stored) if b.role is not None)
    return text, Launch(ENTRY, (-(-count // THREADS), 1, 1), (THREADS, 1, 1), 0, params)


def _parameter(buffer: Buffer, const: str) -> str:
    return f"{const}{ELEMENT_TYPES[buffer.dtype]}* __restrict__ {buffer.name}"


def _stored(g: Geometry, results: Results, output: Output) -> str:
    exact = value_type(g, output.buffer.dtype) == "int"
    values = ["sum" if exact else "to_float(sum)"]
    for step in output.steps:
        if step.operand is not None:
            element = _element(g, results.buffers[step.operand.buffer])
            values.append(element if exact else f"to_float({element})")
    value = f"{output.function}({', '.join(values)})"
    rounded = value if exact else f"round_to<{ELEMENT_TYPES[output.buffer.dtype]}>({value})"
    return f"  {output.buffer.name}[at] = {rounded};\n"


def _element(g: Geometry, buffer: Buffer) -> str:
    """The element of an epilogue operand that belongs to result `at`."""
    m, n = g.problem.m, g.problem.n
    match buffer.axes:
        case ("n",):
            return f"{buffer.name}[at % {n}]"
        case ("m",):
            return f"{buffer.name}[at / {n} % {m}]"
        case _:
            return f"{buffer.name}[at]"
