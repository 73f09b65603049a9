"""The executor contract on a real GPU: the kernels that the interpreter ran, of both families.

Run by benchmarks/device/a_contract.py before anything else.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpipe.problem import Problem
from jaxpipe.runtime import device, execute
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch, arch
from tests.contract_schedules import NO_FP8, REFUSED_BY_WGMMA, ampere, hopper
from tests.contracts import ExecutorContract, Operands

pytestmark = pytest.mark.gpu


def gpu() -> Arch:
    visible = device.visible_gpus()
    assert visible, "these tests need a GPU: run python -m jaxpipe doctor"
    return arch(device.of_jax(visible[0]).arch)


class CudaContract(ExecutorContract):
    """The cubin, through XLA and the driver."""

    @abc.abstractmethod
    def schedule(self, problem: Problem) -> GpuSchedule:
        """A small schedule of the family."""

    def compute(self, problem: Problem, operands: Operands) -> tuple[np.ndarray, ...]:
        schedule, target = self.schedule(problem), gpu().name
        run = functools.partial(execute.run, problem, schedule, executor="cuda", arch=target)
        results = jax.jit(run)({role: jnp.asarray(x) for role, x in operands.items()})
        return tuple(np.asarray(y) for y in results)


class TestCudaOfMmaSync(CudaContract):
    @property
    def refused(self) -> Mapping[str, str]:  # type: ignore[override]
        return {} if gpu().has_mma_fp8 else NO_FP8

    def schedule(self, problem: Problem) -> GpuSchedule:
        return ampere(problem)


class TestCudaOfWgmma(CudaContract):
    @property
    def refused(self) -> Mapping[str, str]:  # type: ignore[override]
        return REFUSED_BY_WGMMA if gpu().has_wgmma else {"*": "family hopper needs"}

    def schedule(self, problem: Problem) -> GpuSchedule:
        return hopper(problem)
