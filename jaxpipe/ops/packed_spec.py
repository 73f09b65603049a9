"""A product with packed weights, as one hashable record: PackedSpec.

It means the product with the unpacked weight; where an executor reads packed weights of this form
it is served without unpacking. It must not know executors, primitives or meshes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import PartitionSpec

from jaxpipe.ops import packing
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.plan import Abilities, Plan
from jaxpipe.ops.prepared_spec import PreparedSpec


@dataclass(frozen=True, slots=True)
class PackedSpec(PreparedSpec):
    """`dense` of a lhs [..., k] and a weight of `shape` [k, n] that comes packed."""

    shape: tuple[int, int]

    def __repr__(self) -> str:
        return f"{self.dense!r} packed {self.shape}"

    def weight(self, rhs: Any) -> Any:
        """The weight unpacked."""
        return packing.unpack(rhs, self.shape)

    def weight_type(self, rhs: Any) -> Any:
        """The type of the weight in a packed array of type `rhs`."""
        sharding = rhs.sharding.update(spec=PartitionSpec(None, None))
        return rhs.update(shape=self.shape, sharding=sharding)

    def factors(self, lhs_ndim: int, rhs_ndim: int) -> Factors:
        """Rows of the lhs can be split over devices, the weight cannot."""
        rows = tuple(f"m{i}" for i in range(lhs_ndim - 1))
        weight = tuple(f"p{i}" for i in range(rhs_ndim))
        ((k,), _), _ = self.dense.dimension_numbers
        lhs = (*rows[:k], "k0", *rows[k:])
        whole = ("k0", *weight, "n0")  # in order of appearance, as Shardy's rules want
        return Factors(lhs, weight, (*rows, "n0"), (), whole, ("n0",))

    def bias_shape(self, lhs: Any, rhs: Any) -> tuple[Any, ...]:
        """One element a column of the weight."""
        return (self.shape[1],)

    def mapped(
        self, ndims: tuple[int, int], dims: tuple[int | None, int | None], axis: Any = None
    ) -> tuple[PackedSpec, int]:
        """As DotSpec.mapped, for a weight that is not mapped."""
        assert dims[1] is None, dims
        dense, out = self.dense.mapped((ndims[0], 2), dims, axis)
        return replace(self, dense=replace(dense, out_sharding=None)), out

    def plan(self, fusion: Fusion, lhs: Any, rhs: Any, bias: Any, able: Abilities) -> Plan:
        """The product with the weight as it lies where the executor can, else unpacked first."""
        plan = self.dense.plan(fusion, lhs, self.weight_type(rhs), bias, able)
        if able.has_packed and packing.is_native(rhs) and plan.dtypes.operand == rhs.dtype.name:
            return replace(plan, is_packed=True)
        return replace(plan, rhs=functools.partial(packing.unpack, shape=self.shape))

    def describe(self, lhs: Any, rhs: Any) -> str:
        """`dot f32[8,16] x packed f32[16,4]`."""
        return f"dot {lhs.str_short()} x packed {self.weight_type(rhs).str_short()}"
