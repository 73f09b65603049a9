"""The wgmma wrapper of one shape, printed: inline PTX named after the instruction.

In: a row of geometry_hopper.WGMMAS, the width of b, the majors. Out: CUDA C++ text. It must not
know problems or schedules. Source: PTX ISA, wgmma.mma_async.
"""

from __future__ import annotations

from jaxpipe.wgmma import Wgmma

_CONSTRAINTS = {"f32": ("float", "+f"), "s32": ("int", "+r")}


def accumulator_type(wgmma: Wgmma) -> str:
    """C++ type of one accumulator register."""
    return _CONSTRAINTS[wgmma.accumulator][0]


def wgmma_mnemonic(wgmma: Wgmma, columns: int) -> str:
    """The instruction, e.g. wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16."""
    shape = f"m64n{columns}k{wgmma.k}"
    return f"wgmma.mma_async.sync.aligned.{shape}.{wgmma.accumulator}.{wgmma.ptx}.{wgmma.ptx}"


def wgmma_wrapper(wgmma: Wgmma, columns: int, a_k_major: bool, b_k_major: bool) -> str:
    """Device function `wgmma_m64nNkK(d, a, b, accumulate)`.

    d: columns / 2 registers a thread; a, b: descriptors; accumulate 0 replaces d, so that nothing
    needs to be cleared.
    """
    count = columns // 2
    kind, constraint = _CONSTRAINTS[wgmma.accumulator]
    registers = _wrap([f"%{i}" for i in range(count)], '      "', '"\n')
    outputs = _wrap([f'"{constraint}"(d[{i}])' for i in range(count)], "      ", "\n")
    immediates = ", 1, 1" if wgmma.has_scales else ""
    if wgmma.has_major:
        immediates += f", {int(not a_k_major)}, {int(not b_k_major)}"
    return f"""\
// Source: PTX ISA, wgmma.mma_async. Immediates: signs of a and b, then 1 where MN-major.
__device__ __forceinline__ void {wgmma_name(wgmma, columns)}(
    {kind} (&d)[{count}], unsigned long long a, unsigned long long b, int accumulate) {{
  asm volatile(
      "{{ .reg .pred p;\\n"
      "setp.ne.b32 p, %{count + 2}, 0;\\n"
      "{wgmma_mnemonic(wgmma, columns)} {{"
{registers}      "}}, %{count}, %{count + 1}, p{immediates}; }}"
      :
{outputs}      : "l"(a), "l"(b), "r"(accumulate));
}}
"""


def wgmma_name(wgmma: Wgmma, columns: int) -> str:
    """Name of the wrapper."""
    return f"wgmma_m64n{columns}k{wgmma.k}"


def _wrap(items: list[str], start: str, end: str, per_line: int = 8) -> str:
    lines = [items[i : i + per_line] for i in range(0, len(items), per_line)]
    texts = [", ".join(line) for line in lines]
    joined = [t + (", " if i + 1 < len(texts) else "") for i, t in enumerate(texts)]
    return "".join(f"{start}{t.rstrip() if start.strip() == '' else t}{end}" for t in joined)
