"""The executor contract for what needs no GPU: nests, emitted PTX, and the host's kernels."""

from __future__ import annotations

import abc
import functools
import zlib
from typing import ClassVar

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxpipe import compiler
from jaxpipe.ir.interpret import interpret
from jaxpipe.ir.nodes import Buffer
from jaxpipe.problem import Problem
from jaxpipe.ptx.run import ADVERSARIAL_MODES
from jaxpipe.runtime import execute, host, interpreted
from jaxpipe.runtime.reference import result_shape
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch
from jaxpipe.transform.build import build
from tests.contract_schedules import NO_FP8, REFUSED_BY_WGMMA, ampere, hopper
from tests.contracts import ExecutorContract, Operands


def placed(operand: np.ndarray, parameter: Buffer) -> np.ndarray:
    """The values of an operand in the shape of the nest's parameter."""
    if parameter.window is not None or operand.size == 0:
        return operand.astype(np.float64)
    at = np.zeros((), np.int64)
    for size, step in zip(parameter.shape, parameter.strides, strict=True):
        at = at[..., None] + step * np.arange(size)
    return operand.reshape(-1)[at].astype(np.float64)


# ---------------------------------------------------------------- nests
class IrContract(ExecutorContract):
    """Interprets the pipelined nest of one family."""

    target: ClassVar[str]

    @abc.abstractmethod
    def schedule(self, problem: Problem) -> GpuSchedule:
        """A small schedule of the family."""

    def compute(self, problem: Problem, operands: Operands) -> tuple[np.ndarray, ...]:
        lowered = compiler.lower(problem, self.schedule(problem), arch(self.target))
        names = ("out", "preactivation")[: 1 + problem.epilogue.save_preactivation]
        dtype, shape = (
            getattr(ml_dtypes, problem.out_dtype, problem.out_dtype),
            result_shape(problem),
        )
        if not lowered:
            return tuple(np.zeros(shape, dtype) for _ in names)
        parameters = {p.name: p for p in build(problem).params}
        arrays = {role: placed(x, parameters[role]) for role, x in operands.items()}
        with np.errstate(all="ignore"):
            found = interpret(tuple(low.stages[-1][1] for low in lowered), arrays)
            return tuple(found[name].reshape(shape).astype(dtype) for name in names)


class TestNestsOfMmaSync(IrContract):
    target = "sm_89"

    def schedule(self, problem: Problem) -> GpuSchedule:
        return ampere(problem)


class TestNestsOfWgmma(IrContract):
    target = "sm_90a"
    refused: ClassVar[dict[str, str]] = REFUSED_BY_WGMMA

    def schedule(self, problem: Problem) -> GpuSchedule:
        return hopper(problem)


# ---------------------------------------------------------------- PTX
class PtxContract(ExecutorContract):
    """Runs the PTX of one family in one of the adversarial modes; a hazard fails the case."""

    target: ClassVar[str]

    @abc.abstractmethod
    def schedule(self, problem: Problem) -> GpuSchedule:
        """A small schedule of the family."""

    def compute(self, problem: Problem, operands: Operands) -> tuple[np.ndarray, ...]:
        compiled = compiler.compile_kernel(problem, self.schedule(problem), self.target)
        mode = ADVERSARIAL_MODES[zlib.crc32(problem.key.encode()) % len(ADVERSARIAL_MODES)]
        results, report = interpreted.run(compiled, operands, mode)
        report.raise_on_hazard(str(problem))
        return results


class TestPtxOfMmaSync(PtxContract):
    target = "sm_80"
    refused: ClassVar[dict[str, str]] = NO_FP8

    def schedule(self, problem: Problem) -> GpuSchedule:
        return ampere(problem)


class TestPtxOfWgmma(PtxContract):
    target = "sm_90a"
    refused: ClassVar[dict[str, str]] = REFUSED_BY_WGMMA

    def schedule(self, problem: Problem) -> GpuSchedule:
        return hopper(problem)


# ---------------------------------------------------------------- host
class TestHost(ExecutorContract):
    """The SIMD kernels of this machine, under jit. They flush denormals, as XLA:CPU does."""

    refused: ClassVar[dict[str, str]] = {
        "*: float8*": "takes float32, bfloat16, float16, the operands is float8",
        "layout: ?? float8*": "takes float32, bfloat16, float16, the operands is float8",
        "dtype: int8 -> *float*": "multiplies int8 into int32 without an epilogue",
        "epilogue: *int32": "multiplies int8 into int32 without an epilogue",
        "epilogue: int8 -> float32": "multiplies int8 into int32 without an epilogue",
        "conv: int8": "takes float32, bfloat16, float16, the operands is int8",
    }
    flushed: ClassVar[frozenset[str]] = frozenset({"edge: bfloat16 denormals"})

    def compute(self, problem: Problem, operands: Operands) -> tuple[np.ndarray, ...]:
        schedule = host.default_schedule(problem)
        run = functools.partial(execute.run, problem, schedule, executor="host")
        results = jax.jit(run)({role: jnp.asarray(x) for role, x in operands.items()})
        return tuple(np.asarray(y) for y in results)
