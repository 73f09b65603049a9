"""What one device does of a product: the kernel primitive, and its sum over split dimensions.

In: operands as this device holds them, spec, fusion. Out: the results. Mesh axes by the letter of
the dimension that they split are `AxesOf`; it must not know which route came here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpipe.ops import compat, epilogue, execute
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.specs import Spec
from jaxpipe.runtime import device

Axes = tuple[str, ...]
AxesOf = dict[str, Axes]  # letter -> mesh axes that split it


def _kernel_types(*avals: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    out = spec.result_type(*avals[:2])
    return [out, out] if fusion.save else [out]


def _placed_types(*avals: Any, platform: str, spec: Spec, fusion: Fusion) -> list[Any]:
    return _kernel_types(*avals, spec=spec, fusion=fusion)


def _lower_kernel(platform: str) -> Callable[..., Any]:
    def rule(ctx: Any, *values: Any, spec: Spec, fusion: Fusion) -> Any:
        place = execute.Place(platform, device.devices_of(ctx))
        fun = functools.partial(execute.run, spec=spec, fusion=fusion, place=place)
        return compat.lower_as(fun, many=True)(ctx, *values)

    return rule


kernel_p = compat.primitive("jaxpipe_kernel", _kernel_types, many=True)
for _platform in ("cpu", "cuda"):
    compat.set_lowering(kernel_p, _lower_kernel(_platform), _platform)
compat.set_lowering(kernel_p, _lower_kernel("other"))


def _lower_placed(ctx: Any, *values: Any, platform: str, **words: Any) -> Any:
    return _lower_kernel(platform)(ctx, *values, **words)


# The same for a platform by name, in the branches of a program for several.
placed_p = compat.primitive("jaxpipe_placed_kernel", _placed_types, many=True)
compat.set_lowering(placed_p, _lower_placed)


def local(*operands: Any, spec: Spec, fusion: Fusion) -> list[Any]:
    """The kernel on what this device holds."""
    spec = replace(spec, out_sharding=None)
    return kernel_p.bind(*operands, spec=spec, fusion=fusion)  # type: ignore[no-any-return]


def local_then_sum(*operands: Any, spec: Spec, fusion: Fusion, axes: Axes) -> list[Any]:
    """The kernel, then one psum over the axes that split contracted dimensions.

    Partial sums cross devices in the result's dtype, as XLA's do. A nonlinear epilogue comes
    after the sum.
    """
    if not axes:
        return local(*compat.same_varying(*operands), spec=spec, fusion=fusion)
    lhs, rhs, *extras = operands
    (partial,) = local(*compat.same_varying(lhs, rhs), spec=spec, fusion=Fusion())
    # The sum no longer varies over `axes`, nor must what is added to it.
    acc, *extras = compat.same_varying(lax.psum(partial, axes), *extras)
    if fusion.is_identity:
        return [acc]
    bias, residual = fusion.split(tuple(extras))
    wide = acc.astype(epilogue.accumulator(acc.dtype))
    return epilogue.apply(wide, bias, residual, fusion, acc.dtype)


# ------------------------------------------------------------------ mesh axes
def flat(axis: Any) -> Axes:
    if axis is None or axis is P.UNCONSTRAINED:
        return ()
    return tuple(axis) if isinstance(axis, tuple) else (axis,)


def partition_spec(letters: Sequence[str], axes: AxesOf) -> Any:
    return P(*[axes.get(letter) or None for letter in letters])


def reduced_axes(factors: Factors, axes: AxesOf) -> Axes:
    return tuple(axis for letter in factors.reduced for axis in axes[letter])
