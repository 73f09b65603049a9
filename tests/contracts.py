"""What every executor must compute, as one table of cases and one suite that they all inherit.

A subclass of `ExecutorContract` says how its executor runs a problem on numpy operands, and which
cases it refuses with which message: nothing is skipped. Results are compared with float64.
"""

from __future__ import annotations

import abc
import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

from jaxpipe.dtypes import DTYPES, OPERAND_DTYPES
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.errors import JaxpipeError
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.runtime.reference import expected, numpy_operands, result_shape, tolerance

Operands = dict[Any, np.ndarray]
T = Layout(transposed=True)
FULL = Epilogue(0.5, "column", "float32", "gelu_erf", residual=True, save_preactivation=True)
FIRST = Epilogue(bias="column", activation="relu", residual=True, residual_first=True)


@dataclass(frozen=True)
class Case:
    """A problem and how its operands are made; exact: results must be equal, zeros in sign too."""

    name: str
    problem: Problem
    fill: str = "random"
    exact: bool = False

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------- operands
def _at(name: str, value: float, *, row: bool) -> Callable[[Operands], None]:
    """One element of an operand: near the start of the second row, or of the second column."""

    def fill(operands: Operands) -> None:
        flat = operands[name].reshape(-1)
        flat[operands[name].shape[-1] if row else 1] = value

    return fill


def _nan_in_both(operands: Operands) -> None:
    _at("lhs", np.nan, row=True)(operands)
    _at("rhs", np.nan, row=False)(operands)


def _infinities(operands: Operands) -> None:
    lhs, rhs = operands["lhs"], operands["rhs"]
    lhs[1, 0], lhs[3, 2], rhs[5, 4] = np.inf, -np.inf, np.inf


def _all(lhs: float, rhs: float) -> Callable[[Operands], None]:
    def fill(operands: Operands) -> None:
        operands["lhs"][...] = lhs
        operands["rhs"][...] = np.abs(operands["rhs"]) if np.isnan(rhs) else rhs

    return fill


FILLS: dict[str, Callable[[Operands], None]] = {
    "random": lambda operands: None,
    "NaN in both": _nan_in_both,
    "NaN in bias": _at("bias", np.nan, row=False),
    "NaN in residual": _at("residual", np.nan, row=True),
    "infinities": _infinities,
    "beyond float16": _all(256.0, -256.0),
    "beyond float32": _all(1e20, 1e20),
    "float16 denormals": _all(2.0**-20, 0.5),
    "float16 denormal results": _all(2.0**-12, 2.0**-10),
    "bfloat16 denormals": _all(2.0**-130, 2.0**20),
    "zeros": _all(0.0, np.nan),
}


# ---------------------------------------------------------------- cases
EXTENTS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33)
SIZED = {"nn": (Layout(), Layout()), "nt": (Layout(), T), "tn": (T, Layout()), "tt": (T, T)}


def _tails() -> Iterator[Case]:
    for size in EXTENTS:
        yield Case(f"tail: m={size}", Matmul(size, 24, 40))
        yield Case(f"tail: n={size}", Matmul(24, size, 40))
        yield Case(f"tail: k={size}", Matmul(24, 24, size))
    yield Case("tail: extent 1 everywhere", Matmul(1, 1, 1))
    yield Case("tail: m, n and k", Matmul(33, 35, 37))
    yield Case("tail: m, n and k, int8", Matmul(33, 35, 37, dtype="int8", rhs=T))
    yield Case("tail: m, n and k, tf32", _typed(Matmul(33, 35, 37, rhs=T), "float32"))
    yield Case("tail: k=0", Matmul(24, 40, 0))
    yield Case("tail: k=0, full epilogue", Matmul(24, 40, 0, epilogue=FULL))
    yield Case("tail: three k tiles and a rest", Matmul(24, 24, 200))


def _typed(problem: Matmul, dtype: str, out: str = "") -> Matmul:
    return replace(problem, dtype=dtype, out_dtype=out, precision="tf32")


def _dtypes() -> Iterator[Case]:
    for dtype in OPERAND_DTYPES:
        for out in ("", "float32", "bfloat16"):
            name = f"dtype: {dtype} -> {out or DTYPES[dtype].default_out}"
            yield Case(name, _typed(Matmul(40, 48, 64, rhs=T, out_dtype="float32"), dtype, out))
        for word, (lhs, rhs) in SIZED.items():
            base = Matmul(48, 64, 64, lhs=lhs, rhs=rhs)
            yield Case(f"layout: {word} {dtype}", _typed(base, dtype))


def _layouts() -> Iterator[Case]:
    for word, (lhs, rhs) in SIZED.items():
        yield Case(f"layout: {word} of odd sizes", Matmul(35, 37, 39, lhs=lhs, rhs=rhs))
    yield Case("layout: padded rows", Matmul(24, 40, 40, lhs=Layout(ld=56), rhs=Layout(ld=64)))
    yield Case(
        "layout: rows padded to odd lengths",
        Matmul(24, 40, 40, lhs=Layout(ld=41), rhs=Layout(True, ld=47)),
    )
    heads = Layout(ld=48, batch_strides=(20 * 48, 16))
    yield Case(
        "layout: heads in place",
        Matmul(20, 20, 16, (2, 3), lhs=heads, rhs=replace(heads, transposed=True)),
    )
    yield Case(
        "layout: one rhs for all", Matmul(20, 24, 40, (2, 3), rhs=Layout(batch_strides=(0, 0)))
    )
    yield Case(
        "layout: one lhs a group", Matmul(20, 24, 40, (2, 3), lhs=Layout(batch_strides=(800, 0)))
    )


def _batches() -> Iterator[Case]:
    for batch in ((1,), (3,), (2, 3)):
        yield Case(f"batch: {batch}", Matmul(24, 40, 40, batch))
        yield Case(f"batch: {batch}, tails and epilogue", Matmul(33, 35, 37, batch, epilogue=FULL))
    yield Case("batch: none", Matmul(24, 40, 40, (0,)))
    yield Case("batch: no rows", Matmul(0, 40, 40))
    yield Case("batch: no columns", Matmul(24, 0, 40))


def _epilogues() -> Iterator[Case]:
    words: dict[str, Epilogue] = {
        "alpha": Epilogue(alpha=-0.75),
        "column bias": Epilogue(bias="column"),
        "row bias": Epilogue(bias="row"),
        "float32 bias": Epilogue(1.0, "column", "float32"),
        "float32 row bias": Epilogue(1.0, "row", "float32"),
        "residual": Epilogue(residual=True),
        "second output": Epilogue(bias="column", save_preactivation=True),
        "all, row bias": replace(FULL, bias="row", activation="silu"),
        "all": FULL,
        "residual first": FIRST,
        "all, residual first": replace(FULL, residual_first=True),
    }
    words |= {a: Epilogue(activation=a) for a in ACTIVATIONS if a != "none"}  # type: ignore[arg-type]
    for name, epilogue in words.items():
        yield Case(f"epilogue: {name}", Matmul(24, 40, 40, epilogue=epilogue))
        yield Case(
            f"epilogue: {name} -> float32, tails",
            Matmul(33, 35, 37, out_dtype="float32", epilogue=epilogue),
        )
    for name, epilogue in {
        "column bias": Epilogue(bias="column"),
        "row bias": Epilogue(bias="row"),
        "residual": Epilogue(residual=True),
        "relu": Epilogue(activation="relu"),
        "residual first": FIRST,
    }.items():
        problem = Matmul(24, 48, 64, dtype="int8", rhs=T, epilogue=epilogue)
        yield Case(f"epilogue: {name} of int32", problem)
    scaled = Epilogue(0.125, "column", "float32", "gelu_tanh")
    yield Case(
        "epilogue: int8 -> float32",
        Matmul(24, 48, 64, dtype="int8", out_dtype="float32", rhs=T, epilogue=scaled),
    )


def _convolutions() -> Iterator[Case]:
    same, image = ((1, 1), (1, 1)), (2, 7, 6, 16, 24)
    shapes: dict[str, Conv2d] = {
        "3x3": Conv2d(*image, (3, 3)),
        "3x3, same": Conv2d(*image, (3, 3), padding=same),
        "stride 2": Conv2d(*image, (3, 3), (2, 2), same),
        "stride 2 and 1": Conv2d(*image, (3, 2), (2, 1), ((1, 0), (0, 1))),
        "dilation 2": Conv2d(*image, (3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2)),
        "one pixel": Conv2d(1, 3, 3, 16, 8, (3, 3)),
        "pointwise": Conv2d(*image, (1, 1)),
        "pointwise, stride 2": Conv2d(*image, (1, 1), (2, 2)),
        "a row of taps": Conv2d(*image, (1, 5), padding=((0, 0), (2, 2))),
        "full padding": Conv2d(*image, (3, 3), padding=((2, 2), (2, 2))),
        "8 channels": Conv2d(2, 7, 6, 8, 40, (3, 3), padding=same),
        "72 channels": Conv2d(1, 5, 5, 72, 24, (3, 3), padding=same),
        "no image": Conv2d(0, 7, 6, 16, 24, (3, 3)),
    }
    for name, conv in shapes.items():
        yield Case(f"conv: {name}", conv)
    conv = shapes["3x3, same"]
    yield Case("conv: all of the epilogue", replace(conv, epilogue=FULL))
    yield Case("conv: row bias", replace(conv, epilogue=Epilogue(bias="row", activation="relu")))
    yield Case("conv: residual first", replace(conv, epilogue=FIRST))
    yield Case("conv: -> float32", replace(conv, out_dtype="float32"))
    yield Case("conv: 3 channels", Conv2d(2, 7, 6, 3, 24, (3, 3), padding=same))
    yield Case("conv: 20 to 9 channels", Conv2d(2, 7, 6, 20, 9, (3, 3), padding=same))
    for dtype in OPERAND_DTYPES[:1] + OPERAND_DTYPES[2:]:
        typed = replace(conv, dtype=dtype, out_dtype="", precision="tf32")
        yield Case(f"conv: {dtype}", typed)


def _edges() -> Iterator[Case]:
    base = Matmul(20, 24, 20)
    for activation in ACTIVATIONS:
        epilogue = Epilogue(activation=activation)  # type: ignore[arg-type]
        yield Case(f"edge: NaN, {activation}", replace(base, epilogue=epilogue), "NaN in both")
    biased, added = Epilogue(bias="column", activation="relu"), Epilogue(residual=True)
    yield Case("edge: NaN in bias", replace(base, epilogue=biased), "NaN in bias")
    yield Case("edge: NaN in residual", replace(base, epilogue=added), "NaN in residual")
    first = replace(base, epilogue=FIRST)
    yield Case("edge: NaN in a residual that is first", first, "NaN in residual")
    yield Case("edge: NaN in a batch", replace(base, batch=(2,)), "NaN in both")
    image = Conv2d(1, 5, 5, 16, 8, (3, 3), padding=((1, 1), (1, 1)))
    yield Case("edge: NaN in an image", image, "NaN in both")
    for dtype in ("bfloat16", "float16", "float32"):
        problem = _typed(replace(base, rhs=T), dtype)
        yield Case(f"edge: infinities, {dtype}", problem, "infinities")
    relu = Epilogue(activation="relu")
    yield Case("edge: infinities, relu", replace(base, epilogue=relu), "infinities")
    yield Case(
        "edge: float16 overflow",
        replace(base, dtype="float16", out_dtype="float16"),
        "beyond float16",
    )
    yield Case("edge: bfloat16 overflow", base, "beyond float32")
    for fill in ("float16 denormals", "float16 denormal results"):
        yield Case(f"edge: {fill}", replace(base, dtype="float16", out_dtype="float16"), fill, True)
    yield Case("edge: bfloat16 denormals", base, "bfloat16 denormals", True)
    yield Case("edge: sums are +0", base, "zeros", True)
    negated = replace(base, epilogue=Epilogue(alpha=-2.0))
    yield Case("edge: negated sums are -0", negated, "zeros", True)
    clipped = replace(base, out_dtype="float32", epilogue=Epilogue(activation="relu"))
    yield Case("edge: relu of +0 is +0", clipped, "zeros", True)


CASES: dict[str, Case] = {
    case.name: case
    for make in (_tails, _dtypes, _layouts, _batches, _epilogues, _convolutions, _edges)
    for case in make()
}
FAST = (
    "tail: m, n and k",
    "tail: k=0, full epilogue",
    "layout: tn float16",
    "dtype: int8 -> int32",
    "layout: heads in place",
    "epilogue: all, row bias",
    "conv: stride 2",
    "conv: pointwise",
    "edge: NaN, relu",
)
SLOW = tuple(name for name in CASES if name not in FAST)


# ---------------------------------------------------------------- the suite
class ExecutorContract(abc.ABC):
    """The suite. refused: case names (with * and ?) and the message of the error that they raise.

    flushed: cases whose operands are denormals that the executor, by its definition, takes as 0.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    flushed: ClassVar[frozenset[str]] = frozenset()

    @abc.abstractmethod
    def compute(self, problem: Problem, operands: Operands) -> tuple[np.ndarray, ...]:
        """`(y,)` or `(y, preactivation)`; a JaxpipeError when the executor cannot."""

    @pytest.mark.parametrize("name", FAST)
    def test_a_problem_is_right(self, name: str) -> None:
        self.hold(CASES[name])

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SLOW)
    def test_every_problem_is_right(self, name: str) -> None:
        self.hold(CASES[name])

    def test_what_is_refused_exists(self) -> None:
        unused = [p for p in (*self.refused, *self.flushed) if not fnmatch.filter(CASES, p)]
        assert unused == []

    def hold(self, case: Case) -> None:
        """The case is computed right, or refused as it is listed."""
        operands = numpy_operands(case.problem, 1)
        FILLS[case.fill](operands)
        messages = [m for p, m in self.refused.items() if fnmatch.fnmatchcase(case.name, p)]
        if messages:
            with pytest.raises(JaxpipeError, match=re.compile(messages[0], re.S)):
                self.compute(case.problem, operands)
            return
        results = self.compute(case.problem, operands)
        if case.name in self.flushed:
            operands = {role: np.zeros_like(x) for role, x in operands.items()}
        assert_right(case, operands, results)


def assert_right(case: Case, operands: Operands, results: tuple[np.ndarray, ...]) -> None:
    """NaN, infinities and what overflows in the right places, the rest within the tolerance."""
    problem = case.problem
    rows, cols = np.arange(problem.batch_size * problem.m), np.arange(problem.n)
    with np.errstate(all="ignore"):
        wanted = expected(problem, operands, rows, cols)
    dtype = np.dtype(getattr(ml_dtypes, problem.out_dtype, problem.out_dtype))
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        assert (got.shape, got.dtype) == (result_shape(problem), dtype)
        _assert_array(case, np.asarray(got).astype(np.float64).reshape(want.shape), want, dtype)


def _assert_array(case: Case, got: np.ndarray, want: np.ndarray, dtype: np.dtype) -> None:
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype).astype(np.float64)
    if case.exact:
        np.testing.assert_array_equal(got, rounded)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(rounded))
        return
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    difference = np.abs(got[finite] - want[finite]) / np.maximum(1.0, np.abs(want[finite]))
    worst, limit = difference.max(initial=0.0), tolerance(case.problem)
    assert worst <= limit, f"{case.problem}: error {worst:.3e}, limit {limit:.3e}"
