"""A product whose weight comes in a form of its own: what PackedSpec and RoundedSpec share.

It means the dense product with what `weight` makes of rhs; an executor that reads the form itself
is spared that. It must not know executors, primitives or meshes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.options import Options


@dataclass(frozen=True, slots=True)
class PreparedSpec(ABC):
    """`dense` of a lhs and `weight(rhs)`."""

    dense: DotSpec
    out_sharding: Any = field(default=None, kw_only=True)

    @abstractmethod
    def weight(self, rhs: Any) -> Any:
        """The weight that rhs stands for, as an array."""

    @abstractmethod
    def weight_type(self, rhs: Any) -> Any:
        """Its type, from the type of rhs."""

    @property
    def op(self) -> str:
        """ "dot"."""
        return "dot"

    @property
    def options(self) -> Options:
        """The caller's."""
        return self.dense.options

    def result_type(self, lhs: Any, rhs: Any) -> Any:
        """As of the dense product."""
        return self.dense.result_type(lhs, self.weight_type(rhs))

    def reference(self, lhs: Any, rhs: Any, wide: bool = False) -> Any:
        """lax.dot_general with the weight."""
        return self.dense.reference(lhs, self.weight(rhs), wide)
