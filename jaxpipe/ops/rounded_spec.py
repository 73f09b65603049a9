"""A product of 16-bit operands whose weight lies in float32, as one hashable record: RoundedSpec.

It means the product with the weight rounded first. An executor that rounds while it packs reads the
weight once, where it lies; others get a rounded copy. It must not know executors, primitives or
meshes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from jaxpipe.ops import plan
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.plan import Abilities, Plan
from jaxpipe.ops.prepared_spec import PreparedSpec
from jaxpipe.problem import Matmul

ROUNDED = ("bfloat16", "float16")
FEW_ROWS = 32  # below, the kernels read a weight in place, and half the bytes are the faster ones


@dataclass(frozen=True, slots=True)
class RoundedSpec(PreparedSpec):
    """`dense` of a lhs and a weight, both of `dtype`, a name of ROUNDED; the weight comes as
    float32."""

    dtype: str

    def __repr__(self) -> str:
        return f"{self.dense!r} rounded to {self.dtype}"

    def weight(self, rhs: Any) -> Any:
        """The weight rounded."""
        return rhs.astype(self.dtype)

    def weight_type(self, rhs: Any) -> Any:
        """The type of the rounded weight."""
        return rhs.update(dtype=jnp.dtype(self.dtype))

    def factors(self, lhs_ndim: int, rhs_ndim: int) -> Factors:
        """The product's."""
        return self.dense.factors(lhs_ndim, rhs_ndim)

    def bias_shape(self, lhs: Any, rhs: Any) -> tuple[Any, ...]:
        """The product's."""
        return self.dense.bias_shape(lhs, rhs)

    def mapped(
        self, ndims: tuple[int, int], dims: tuple[int | None, int | None], axis: Any = None
    ) -> tuple[RoundedSpec, int]:
        """As DotSpec.mapped."""
        dense, out = self.dense.mapped(ndims, dims, axis)
        return replace(self, dense=dense), out

    def plan(self, fusion: Fusion, lhs: Any, rhs: Any, bias: Any, able: Abilities) -> Plan:
        """The product with the weight as it lies where the executor rounds it, else as a copy."""
        planned = self.dense.plan(fusion, lhs, self.weight_type(rhs), bias, able)
        problem = planned.problem
        assert isinstance(problem, Matmul), problem
        in_place = planned.rhs is plan.as_is and not problem.rhs.transposed
        rounds = able.has_rounding and in_place and problem.m > FEW_ROWS
        return replace(planned, is_rhs_rounded=True) if rounds else planned

    def describe(self, lhs: Any, rhs: Any) -> str:
        """`dot bf16[8,16] x f32[16,4] rounded`."""
        return f"dot {lhs.str_short()} x {rhs.str_short()} rounded to {self.dtype}"
