"""Flax modules as functions, without importing Flax: it is used only where the caller has it.

In: an object. Out: for a linen module its `apply`; for an nnx module a pure function of its state
and how to store the state back; for anything else nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def linen_apply(candidate: Any) -> Callable[..., Any] | None:
    """`module.apply` of a linen module, else None."""
    linen = sys.modules.get("flax.linen")
    if linen is not None and isinstance(candidate, linen.Module):
        return candidate.apply  # type: ignore[no-any-return]
    return None


@dataclass(frozen=True, slots=True)
class NnxModule:
    """An nnx module that is called as a pure function of its state."""

    module: Any

    @staticmethod
    def of(candidate: Any) -> NnxModule | None:
        """The wrapped module, or None for anything else."""
        nnx = sys.modules.get("flax.nnx")
        if nnx is not None and isinstance(candidate, nnx.Module):
            return NnxModule(candidate)
        return None

    def split(self) -> tuple[Any, Callable[..., tuple[Any, Any]]]:
        """(state, pure): pure(state, *args, **kwargs) -> (results, new state)."""
        nnx = sys.modules["flax.nnx"]
        graph, state = nnx.split(self.module)

        def pure(state: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            module = nnx.merge(graph, state)
            out = module(*args, **kwargs)
            return out, nnx.state(module)

        return state, pure

    def update(self, state: Any) -> None:
        """Store a new state (batch statistics, random counters) in the module."""
        sys.modules["flax.nnx"].update(self.module, state)
