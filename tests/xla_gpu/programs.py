"""Kernels without a compiler, and what tests read off an optimised program."""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from benchmarks import hlo
from jaxpipe.kernel import CompiledKernel, Kernel, Launch, Pointer
from jaxpipe.problem import Problem
from jaxpipe.runtime import reference
from jaxpipe.schedule import GpuSchedule

XLA_SLICES_IN_PLACE = pytest.mark.skipif(
    tuple(int(part) for part in jax.__version__.split(".")[:2]) < (0, 11),
    reason="XLA of jax 0.10 copies slices of stacked weights, for its own products too",
)


def stand_in(problem: Problem, workspace_bytes: int = 0, target: str = "sm_90a") -> CompiledKernel:
    """A kernel that XLA can place and nobody can run: its binary is no binary."""
    roles = [*reference.operand_shapes(problem), "out"]
    roles += ["preactivation"] if problem.epilogue.save_preactivation else []
    roles += ["workspace"] if workspace_bytes else []
    launch = Launch("entry", (4, 2, 1), (128, 1, 1), 65536, tuple(Pointer(r) for r in roles))
    kernel = Kernel("stand_in", "", target, problem, GpuSchedule(), (launch,), workspace_bytes)
    return CompiledKernel(kernel, "00" * 32, "", b"no binary" * 100, (), "none")


def shape(*dims: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    """An argument of a program."""
    return jax.ShapeDtypeStruct(dims, jnp.dtype(dtype))


def ours(module: hlo.Module) -> list[hlo.Instruction]:
    """Our custom calls, wherever XLA put them."""
    return [
        i
        for computation in module.computations.values()
        for i in computation.instructions.values()
        if f'custom_call_target="{hlo.OURS}"' in i.attributes
    ]


def kinds(text: str) -> Counter[str]:
    """Kernels of a program by class, loops unrolled."""
    counts: Counter[str] = Counter()
    for kernel in hlo.kernels(hlo.parse(text)):
        counts[kernel.kind] += kernel.launches
    return counts


def layouts_are_row_major(instruction: hlo.Instruction) -> bool:
    """True when no operand of a call is constrained to another order than row-major."""
    found = re.search(r"operand_layout_constraints=\{(.*?)\}, \w+=", instruction.attributes)
    assert found, instruction.attributes[:200]
    orders = re.findall(r"\]\{([\d,]*)\}", found[1])
    return all(o == ",".join(map(str, reversed(range(o.count(",") + 1)))) for o in orders if o)
