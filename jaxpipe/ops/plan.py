"""From the types of one call to a Problem: which dtypes and precisions kernels serve, and how.

In: operand types, lax's precision, the fused epilogue. Out: a `Plan`: the Problem, and what is
done to operands and results around it. What no kernel serves raises UnsupportedError with the
reason; the caller decides whether that is an error or sends the call to XLA. docs/precision.md is
this file as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpipe.dtypes import OPERAND_DTYPES
from jaxpipe.epilogue import BiasKind, Epilogue
from jaxpipe.errors import UnsupportedError
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.fold import is_known
from jaxpipe.problem import Precision, Problem

Preset = lax.DotAlgorithmPreset
RESULT_DTYPES = ("float32", "bfloat16", "float16")
WIDENED = ("float32", "bfloat16", "float16")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")

# Algorithms that our kernels are: operand dtype -> presets that ask for what they do.
SERVED_PRESETS: dict[str, tuple[Any, ...]] = {
    "float32": (Preset.DEFAULT, Preset.F32_F32_F32, Preset.TF32_TF32_F32),
    "bfloat16": (Preset.DEFAULT, Preset.BF16_BF16_F32),
    "float16": (Preset.DEFAULT, Preset.F16_F16_F32),
    "float8_e4m3fn": (Preset.DEFAULT, Preset.ANY_F8_ANY_F8_F32),
    "float8_e5m2": (Preset.DEFAULT, Preset.ANY_F8_ANY_F8_F32),
    "int8": (Preset.DEFAULT,),
}


@dataclass(frozen=True, slots=True)
class Dtypes:
    """given: what algorithms are asked for by, a dtype of the caller's operands. operand: both are
    converted to it, exactly. result: what the kernel writes. final: what the caller gets,
    converted after the kernel (int8 results wrap as in XLA)."""

    given: str
    operand: str
    result: str
    final: str


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an executor's kernels have: TensorFloat-32 products; products of 8-bit floats (else
    they widen to bfloat16); memory to spare for image patches (a filter's gradient copies each
    pixel once a filter tap); reading what `prepack` makes; rounding a float32 weight to the 16 bits
    of the other operand while it is packed."""

    has_tf32: bool = False
    has_fp8: bool = False
    has_patches: bool = False
    has_packed: bool = False
    has_rounding: bool = False


def as_is(x: Any) -> Any:
    """An operand that is used as it lies."""
    return x


@dataclass(frozen=True, slots=True)
class Plan:
    """One call of one kernel: convert and prepare operands, run `problem`, convert the results.

    lhs and rhs turn an operand into what the kernel reads; XLA does that, and may fuse it. shape:
    the kernel's result, which is symbolic where the problem is dynamic.
    is_packed: rhs is read as `jaxpipe.prepack` lays it, whatever the problem's layout says.
    is_rhs_rounded: rhs stays float32, the kernel rounds it to the problem's dtype.
    """

    problem: Problem
    dtypes: Dtypes
    shape: tuple[Any, ...]
    lhs: Callable[[Any], Any] = as_is
    rhs: Callable[[Any], Any] = as_is
    is_packed: bool = False
    is_rhs_rounded: bool = False


def dtypes(lhs: Any, rhs: Any, out: Any, fusion: Fusion, able: Abilities) -> Dtypes:
    """How dtypes `lhs x rhs -> out` are served; UnsupportedError when no kernel serves them."""
    names = {jnp.dtype(lhs).name, jnp.dtype(rhs).name}
    final = jnp.dtype(out).name
    operand = _common(names, final, able)
    if operand == "int8":
        return _integer(final, fusion)
    given = min(names) if names <= set(FLOAT8) else operand
    if final in FLOAT8:
        return Dtypes(given, operand, "float32", final)
    if final not in RESULT_DTYPES:
        raise UnsupportedError(
            f"{operand} products with a {final} result: kernels write {', '.join(RESULT_DTYPES)}; "
            "pass preferred_element_type"
        )
    return Dtypes(given, operand, final, final)


def _common(names: set[str], final: str, able: Abilities) -> str:
    """The one operand dtype. A mix of floats of at most 32 bits widens exactly: to float32, or to
    the 16-bit one that is mixed with 8-bit floats. 8-bit floats by themselves stay where kernels
    multiply them, unless mixed."""
    narrow, wide = names & set(FLOAT8), names - set(FLOAT8)
    if narrow and wide <= set(WIDENED):
        (kept,) = wide or (narrow if able.has_fp8 and len(narrow) == 1 else {"bfloat16"})
        return kept
    if len(names) == 1:
        (name,) = names
        if name in OPERAND_DTYPES:
            return name
        raise UnsupportedError(
            f"{name} operands: kernels take {', '.join(OPERAND_DTYPES)}; convert them"
        )
    if names <= set(WIDENED):
        return "float32"
    raise UnsupportedError(
        f"operands of {' and '.join(sorted(names))}: kernels mix only "
        f"{', '.join((*WIDENED, *FLOAT8))}; convert one of them (result {final})"
    )


def _integer(final: str, fusion: Fusion) -> Dtypes:
    """int8 sums in int32; an int8 result is the int32 one, wrapped, as in XLA."""
    if final not in ("int32", "int8"):
        raise UnsupportedError(
            f"int8 products with a {final} result: kernels sum int8 in int32; "
            "pass preferred_element_type=int32 and convert the result"
        )
    if not fusion.is_identity:
        raise UnsupportedError(
            f"int8 products with the epilogue {fusion!r}: apply it to the int32 result"
        )
    return Dtypes("int8", "int8", "int32", final)


def precision(given: Any, types: Dtypes, able: Abilities) -> Precision:
    """What `given` (lax's canonical precision) asks of a kernel; matters for float32 only.

    Where the executor has TF32, DEFAULT and HIGH permit it, as XLA:GPU does; HIGHEST never does.
    UnsupportedError names an algorithm that our kernels are not.
    """
    if isinstance(given, Preset | lax.DotAlgorithm):
        return _algorithm(given, types, able)
    highest = lax.Precision.HIGHEST in _pair(given)
    permits = not highest and types.operand == "float32"
    return "tf32" if able.has_tf32 and permits else "float32"


def _algorithm(given: Any, types: Dtypes, able: Abilities) -> Precision:
    if given not in SERVED_PRESETS[types.given]:
        name = getattr(given, "name", given)
        served = ", ".join(p.name for p in SERVED_PRESETS[types.given])
        raise UnsupportedError(
            f"precision={name} with {types.given} operands: kernels implement {served}"
        )
    if given == Preset.TF32_TF32_F32 and not able.has_tf32:
        raise UnsupportedError("precision=TF32_TF32_F32: a CPU has no TF32; use F32_F32_F32")
    permits = given in (Preset.DEFAULT, Preset.TF32_TF32_F32) and types.operand == "float32"
    return "tf32" if able.has_tf32 and permits else "float32"


def _pair(given: Any) -> Iterator[Any]:
    yield from given if isinstance(given, tuple) else (given,)


def epilogue(fusion: Fusion, bias_dtype: Any) -> Epilogue:
    """The Problem's form of `fusion`; bias_dtype is the bias operand's dtype or None."""
    kind: BiasKind = "column" if fusion.bias else "none"
    name = "" if bias_dtype is None else jnp.dtype(bias_dtype).name
    return Epilogue(
        fusion.alpha, kind, name, fusion.activation, fusion.residual, fusion.save,
        fusion.derivative, fusion.residual_first,
    )  # fmt: skip


def require_concrete(what: str, sizes: tuple[Any, ...]) -> None:
    """UnsupportedError when one of `sizes`, which kernels are made for, is symbolic."""
    if not is_known(*sizes):
        raise UnsupportedError(
            f"symbolic {what} {sizes}: kernels are made for numbers there, only the batch may be "
            "symbolic; export with concrete dimensions to carry a kernel"
        )
