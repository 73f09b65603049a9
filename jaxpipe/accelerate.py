"""jaxpipe.accelerate: any JAX function with its products on jaxpipe's kernels, epilogues fused.

The function is traced, its products are found together with what follows them (scale, bias,
activation, residual, casts), and the program is run with these replaced. It stays a JAX function:
grad, vmap, jit, scan, checkpoint, shard_map and custom derivatives work through it, inside and
outside. Accelerating twice changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxpipe.ops import execute, options
from jaxpipe.ops.coverage import Site
from jaxpipe.rewrite.evaluate import Rewriter, Rewritten
from jaxpipe.rewrite.modules import NnxModule, linen_apply


@dataclass(frozen=True, slots=True)
class ReportedSite:
    """One product of the function: where, what was fused, and who runs it by which schedule.

    site.implementation is "xla" for what is left, with site.reason saying why.
    """

    scope: str
    fused: tuple[str, ...]
    site: Site

    def __str__(self) -> str:
        steps = " -> ".join(("product", *self.fused))
        site = self.site
        tail = (
            f"left to XLA: {site.reason}"
            if site.implementation == "xla"
            else (f"{site.implementation} [{site.schedule}] <- {site.source}")
        )
        return f"{self.scope or '(top)'}: {site.problem}: {steps}: {tail}"


@dataclass(frozen=True, slots=True)
class Report:
    """Every product that `accelerate` found in one call, in program order."""

    sites: tuple[ReportedSite, ...]

    @property
    def taken(self) -> int:
        """Products that kernels serve."""
        return sum(row.site.implementation != "xla" for row in self.sites)

    @property
    def fraction(self) -> float:
        """taken / all; 1.0 without products."""
        return self.taken / len(self.sites) if self.sites else 1.0

    def __str__(self) -> str:
        head = f"{self.taken} of {len(self.sites)} products on jaxpipe"
        return "\n".join([head, *map(str, self.sites)])


class Accelerated:
    """A function that runs as `accelerate` says; call it as the original."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self._fun = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(Rewriter(options.current()), args, kwargs)

    def report(self, *args: Any, **kwargs: Any) -> Report:
        """What a call with these arguments (arrays or ShapeDtypeStructs) would run, by whom.

        Nothing is computed. Executors are those of the default backend; inside shard_map or on
        automatic meshes the kernels see smaller shapes than the whole ones that are listed.
        """
        rewriter = Rewriter(options.current())
        jax.eval_shape(lambda *leaves: self._run_leaves(rewriter, leaves, args, kwargs),
                       *_arrays((args, kwargs)))  # fmt: skip
        place = execute.Place("cuda" if jax.default_backend() == "gpu" else jax.default_backend())
        return Report(tuple(_reported(row, place) for row in rewriter.found))

    def _run(self, rewriter: Rewriter, args: Any, kwargs: Any) -> Any:
        return self._run_leaves(rewriter, _arrays((args, kwargs)), args, kwargs)

    def _run_leaves(self, rewriter: Rewriter, leaves: Any, args: Any, kwargs: Any) -> Any:
        flat, tree = jax.tree.flatten((args, kwargs))

        def call(*arrays: Any) -> Any:
            rest = iter(arrays)
            filled = [next(rest) if _is_array(leaf) else leaf for leaf in flat]
            new_args, new_kwargs = jax.tree.unflatten(tree, filled)
            return self._fun(*new_args, **new_kwargs)

        return rewriter.call(call, leaves)


class AcceleratedModule(Accelerated):
    """An nnx module that runs as `accelerate` says; its state is updated as by the original."""

    def __init__(self, module: NnxModule) -> None:
        super().__init__(module.module)
        self._module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state, pure = self._module.split()
        out, new = Accelerated(pure)(state, *args, **kwargs)
        self._module.update(new)
        return out

    def report(self, *args: Any, **kwargs: Any) -> Report:
        """See Accelerated.report; the module's state stays as it is."""
        state, pure = self._module.split()
        return Accelerated(pure).report(state, *args, **kwargs)


def accelerate(fun: Callable[..., Any]) -> Accelerated:
    """`fun` with its matrix products and convolutions on jaxpipe's kernels.

    A Flax linen module stands for its `apply`, an nnx module for itself.

    Fused with a product, when nothing else uses the value between: multiplication with a number,
    a bias along the trailing dimensions, relu, gelu (both), silu or tanh (found by what is
    computed, also written out), a residual, casts between floating-point types. A fused chain is
    computed in float32 and rounded once, to the type of its last value; everything else is as it
    was. Arguments that are no arrays (numbers, strings, functions) are constants of the trace.

        fast = jaxpipe.accelerate(model.apply)
        y = jax.jit(fast)(params, x)
        print(fast.report(params, x))

    Use it under jit: without, every call traces anew.
    """
    if isinstance(fun, Accelerated):
        return fun
    if (module := NnxModule.of(fun)) is not None:
        return AcceleratedModule(module)
    apply = linen_apply(fun) or fun
    if not callable(apply):
        raise TypeError(f"accelerate of {fun!r}: it takes a function or a Flax module")
    return Accelerated(apply)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _arrays(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if _is_array(leaf)]


def _reported(row: Rewritten, place: execute.Place) -> ReportedSite:
    if row.left:
        described = row.spec.describe(*row.operands[:2])
        return ReportedSite(row.scope, (), Site(row.spec.op, described, "xla", reason=row.left))
    return ReportedSite(
        row.scope, row.steps, execute.preview(row.operands, row.spec, row.fusion, place)
    )
