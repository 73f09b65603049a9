"""The second launch of split-K: partial sums added in fixed order, then the epilogue.

In: a Geometry with split_k > 1. Out: CUDA text and its launch. One thread finishes two results.
"""

from __future__ import annotations

from jaxpipe.codegen.hopper_epilogue import _float
from jaxpipe.codegen.hopper_source import ELEMENT_TYPES
from jaxpipe.geometry_hopper import Geometry
from jaxpipe.kernel import Launch, Param, Pointer

ENTRY = "jaxpipe_hopper_reduce"
THREADS = 256


def reduction(g: Geometry) -> str:
    """Kernel text."""
    p, e = g.problem, g.problem.epilogue
    out, partial = ELEMENT_TYPES[p.out_dtype], ELEMENT_TYPES[g.store_dtype]
    exact = g.store_dtype == "int32" and p.out_dtype == "int32"
    kind = "int" if exact else "float"
    parameters = [f"const {partial}* __restrict__ workspace", f"{out}* __restrict__ out"]
    if e.save_preactivation:
        parameters.append(f"{out}* __restrict__ preactivation")
    if e.bias != "none":
        parameters.append(f"const {ELEMENT_TYPES[p.bias_dtype]}* __restrict__ bias")
    if e.residual:
        parameters.append(f"const {out}* __restrict__ residual")
    load = "" if exact else "to_float"
    rounded = "" if exact else f"round_to<{out}>"
    alpha = "" if e.alpha == 1.0 else f"{_float(e.alpha)} * "
    bias = {"none": "", "column": " + {}(bias[at % kN])", "row": " + {}(bias[at / kN % kM])"}[
        e.bias
    ]
    function = {"none": "", "tanh": "tanhf"}.get(e.activation, e.activation)
    residual = f" + {load}(residual[at])" if e.residual else ""
    keep = f"  preactivation[at] = {rounded}(value);\n" if e.save_preactivation else ""
    return f"""\
// Adds the {g.schedule.split_k} partial sums of each result in order, then finishes it.
extern "C" __global__ void __launch_bounds__({THREADS}) {ENTRY}(
    {", ".join(parameters)}) {{
  constexpr long long kResults = {p.batch_size * p.m * p.n}ll;
  const long long at = (long long)blockIdx.x * {THREADS} + threadIdx.x;
  if (at >= kResults) return;
  {partial} sum = workspace[at];
#pragma unroll
  for (int split = 1; split < kSplits; ++split) sum += workspace[split * kResults + at];
  {kind} value = {alpha}sum{bias.format(load)};
{keep}  value = {function}(value){residual};
  out[at] = {rounded}(value);
}}
"""


def reduction_launch(g: Geometry) -> Launch:
    """Grid and parameters of `reduction`."""
    p, e = g.problem, g.problem.epilogue
    params: list[Param] = [Pointer("workspace"), Pointer("out")]
    params += [Pointer("preactivation")] if e.save_preactivation else []
    params += [Pointer("bias")] if e.bias != "none" else []
    params += [Pointer("residual")] if e.residual else []
    blocks = -(-p.batch_size * p.m * p.n // THREADS)
    return Launch(ENTRY, (blocks, 1, 1), (THREADS, 1, 1), 0, tuple(params))
