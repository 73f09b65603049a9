"""Dimensions of a product as letters: what partitioning needs to know of a spec, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.ops.epilogue import Fusion


@dataclass(frozen=True, slots=True)
class Factors:
    """A letter that operands and result share is the same dimension.

    reduced letters are summed over; whole ones cannot be split over devices.
    """

    lhs: tuple[str, ...]
    rhs: tuple[str, ...]
    out: tuple[str, ...]
    reduced: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    bias: tuple[str, ...] = ()

    def operands(self, fusion: Fusion) -> list[tuple[str, ...]]:
        """Letters of every operand in order."""
        extra = [self.bias] if fusion.bias else []
        extra += [self.out] if fusion.residual else []
        return [self.lhs, self.rhs, *extra]
