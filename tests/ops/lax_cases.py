"""The case spaces of JAX's own tests of dot_general and conv_general_dilated, drawn at random.

Shapes, dimension numbers, dtypes and options are those that jax/tests/lax_test.py samples from
(testDot, testDotPreferredElement, testDotGeneralContractOnly, testDotGeneralContractAndBatch,
testConv, testConvGeneralDilated), restated as tables; a space of random dimension numbers is
added. A case is one call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*FLOATS, *INTS, *COMPLEX, "bool")
PRECISIONS = (
    None,
    lax.Precision.DEFAULT,
    lax.Precision.HIGH,
    lax.Precision.HIGHEST,
    (lax.Precision.DEFAULT, lax.Precision.HIGHEST),
)
PREFERRED = (
    ("float16", "float16"), ("float16", "float32"), ("float16", "float64"),
    ("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "float64"),
    ("float32", "float32"), ("float32", "float64"), ("float64", "float64"),
    ("int8", "int8"), ("int8", "int16"), ("int8", "int32"), ("int8", "int64"),
    ("int16", "int16"), ("int16", "int32"), ("int16", "int64"), ("int32", "int32"),
    ("int32", "int64"), ("int64", "int64"), ("complex64", "complex64"),
    ("complex64", "complex128"), ("complex128", "complex128"),
    ("int8", "float16"), ("int8", "bfloat16"), ("int8", "float32"), ("int8", "float64"),
    ("int16", "float16"), ("int16", "bfloat16"), ("int16", "float32"), ("int16", "float64"),
    ("int32", "float32"), ("int32", "float64"), ("int64", "float64"),
)  # fmt: skip
CONTRACT_ONLY = (
    ((5,), (5,), (0,), (0,)), ((5, 7), (5,), (0,), (0,)), ((7, 5), (5,), (1,), (0,)),
    ((3, 5), (2, 5), (1,), (1,)), ((5, 3), (5, 2), (0,), (0,)),
    ((5, 3, 2), (5, 2, 4), (0,), (0,)), ((5, 3, 2), (5, 2, 4), (0, 2), (0, 1)),
    ((5, 3, 2), (3, 5, 2, 4), (0, 2), (1, 2)), ((1, 2, 2, 3), (1, 2, 3, 1), (1,), (1,)),
    ((3, 2), (2, 4), (1,), (0,)),
)  # fmt: skip
CONTRACT_AND_BATCH = (
    ((3, 3, 2), (3, 2, 4), (((2,), (1,)), ((0,), (0,)))),
    ((3, 3, 2), (2, 3, 4), (((2,), (0,)), ((0,), (1,)))),
    ((3, 4, 2, 4), (3, 4, 3, 2), (((2,), (3,)), ((0, 1), (0, 1)))),
)
CONV_NUMBERS = (
    (("NCHW", "OIHW", "NCHW"), (0, 1, 2, 3), (0, 1, 2, 3)),
    (("NHWC", "HWIO", "NHWC"), (0, 2, 3, 1), (2, 3, 1, 0)),
    (("NCHW", "HWIO", "NHWC"), (0, 1, 2, 3), (2, 3, 1, 0)),
)


@dataclass(frozen=True)
class Case:
    """One call of `op` ("dot_general" or "conv_general_dilated"); `terms` of each sum."""

    op: str
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    dtypes: tuple[str, str]
    words: dict[str, Any] = field(default_factory=dict)
    terms: int = 1

    def operands(self, seed: int) -> tuple[Any, Any]:
        """Small values, so that integers do not all wrap."""
        generator = np.random.default_rng(seed)
        return tuple(
            jnp.asarray(generator.integers(-4, 5, shape) if "float" not in dtype
                        else generator.standard_normal(shape), dtype)
            for shape, dtype in zip((self.lhs, self.rhs), self.dtypes, strict=True)
        )  # fmt: skip

    def call(self, module: Any, x: Any, y: Any) -> Any:
        """Through `module`: jax.lax or jaxpipe."""
        return getattr(module, self.op)(x, y, **self.words)


def _dot(r: random.Random) -> Case:
    lhs, rhs = r.choice(((3,), (4, 3))), r.choice(((3,), (3, 6)))
    number = FLOATS + INTS + COMPLEX
    dtypes = (r.choice(number), r.choice(number)) if r.random() < 0.95 else ("bool", "bool")
    words = {"dimension_numbers": (((len(lhs) - 1,), (0,)), ((), ())),
             "precision": r.choice(PRECISIONS)}  # fmt: skip
    return Case("dot_general", lhs, rhs, dtypes, words, 3)


def _preferred(r: random.Random) -> Case:
    lhs, rhs = r.choice(((3,), (4, 3))), r.choice(((3,), (3, 6)))
    dtype, preferred = r.choice(PREFERRED)
    words = {"dimension_numbers": (((len(lhs) - 1,), (0,)), ((), ())),
             "preferred_element_type": preferred}  # fmt: skip
    return Case("dot_general", lhs, rhs, (dtype, dtype), words, 3)


def _contract_only(r: random.Random) -> Case:
    lhs, rhs, lc, rc = r.choice(CONTRACT_ONLY)
    dtype = r.choice(DTYPES)
    words = {"dimension_numbers": ((lc, rc), ((), ()))}
    return Case("dot_general", lhs, rhs, (dtype, dtype), words, 10)


def _contract_and_batch(r: random.Random) -> Case:
    lhs, rhs, numbers = r.choice(CONTRACT_AND_BATCH)
    dtype = r.choice(DTYPES)
    return Case("dot_general", lhs, rhs, (dtype, dtype), {"dimension_numbers": numbers}, 4)


def _any_numbers(r: random.Random) -> Case:
    """Up to two batch, two contracting and two free dimensions a side, anywhere."""
    names = {kind: [f"{kind}{i}" for i in range(r.randint(0, 2))] for kind in "bkmn"}
    sizes = {name: r.choice((1, 2, 3, 5, 8, 17)) for group in names.values() for name in group}
    lhs = r.sample(both := names["b"] + names["k"] + names["m"], len(both))
    rhs = r.sample(both := names["b"] + names["k"] + names["n"], len(both))
    places = lambda dims, side: tuple(side.index(d) for d in dims)  # noqa: E731
    numbers = tuple(
        (places(dims, lhs), places(dims, rhs))
        for dims in (r.sample(names["k"], len(names["k"])), r.sample(names["b"], len(names["b"])))
    )
    dtype = r.choice(("float32", "float32", "bfloat16", "float16", "int8"))
    shape = lambda dims: tuple(sizes[d] for d in dims)  # noqa: E731
    words = {"dimension_numbers": numbers}
    return Case("dot_general", shape(lhs), shape(rhs), (dtype, dtype), words, 300)


def _conv(r: random.Random) -> Case:
    b, i, j = (r.choice((2, 3)) for _ in range(3))
    dtype, preferred = r.choice(PREFERRED)
    words = {
        "window_strides": r.choice(((1, 1), (1, 2), (2, 1))),
        "padding": r.choice(("VALID", "SAME", "SAME_LOWER")),
        "preferred_element_type": preferred if r.random() < 0.5 else None,
    }
    return _with_numbers(r, (b, i, 9, 10), (j, i, 4, 5), dtype, words, i)


def _conv_general(r: random.Random) -> Case:
    b, i, j = (r.choice((2, 3)) for _ in range(3))
    batch_groups, feature_groups = r.choice(((1, 1), (1, 1), (2, 1), (1, 2)))
    lhs = (b * batch_groups, i * feature_groups, 9, r.choice((0, 10)))
    rhs = (j * feature_groups * batch_groups, i, 4, 5)
    words = {
        "window_strides": r.choice(((1, 1), (2, 1))),
        "padding": r.choice((((1, 2), (2, 0)), ((10, 8), (7, 13)))),
        "lhs_dilation": r.choice(((1, 1), (1, 2), (1, 4))),
        "rhs_dilation": r.choice(((1, 1), (1, 2), (1, 4))),
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }
    return _with_numbers(r, lhs, rhs, r.choice(DTYPES), words, i)


def _with_numbers(
    r: random.Random, lhs: Any, rhs: Any, dtype: str, words: dict[str, Any], channels: int
) -> Case:
    """NCHW and OIHW shapes in one of the layouts of the tests."""
    numbers, lhs_order, rhs_order = r.choice(CONV_NUMBERS)
    moved = tuple(tuple(s[d] for d in o) for s, o in ((lhs, lhs_order), (rhs, rhs_order)))
    words = {**words, "dimension_numbers": numbers}
    terms = 20 * channels
    return Case("conv_general_dilated", moved[0], moved[1], (dtype, dtype), words, terms)


SPACES: tuple[tuple[int, Callable[[random.Random], Case]], ...] = (
    (3, _dot),
    (3, _preferred),
    (3, _contract_only),
    (2, _contract_and_batch),
    (5, _any_numbers),
    (3, _conv),
    (5, _conv_general),
)


def draw(count: int, seed: int) -> list[Case]:
    """`count` cases, the spaces weighted as in SPACES."""
    r = random.Random(seed)
    weights = [weight for weight, _ in SPACES]
    return [r.choices([make for _, make in SPACES], weights)[0](r) for _ in range(count)]
