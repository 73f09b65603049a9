"""Folding dimension numbers into one strided product: exact, and without copies where it should."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpipe.ops.fold import Fold, Operand, fold
from jaxpipe.problem import Matmul


@dataclasses.dataclass(frozen=True)
class Case:
    """Operands of small integers, dimension numbers, and the einsum that they mean."""

    lhs: np.ndarray
    rhs: np.ndarray
    dimension_numbers: tuple
    subscripts: str


@st.composite
def cases(draw) -> Case:
    counts = {kind: draw(st.integers(0, 2)) for kind in "bkmn"}
    names = {kind: [f"{kind}{i}" for i in range(n)] for kind, n in counts.items()}
    letter = {name: chr(97 + i) for i, name in enumerate(itertools.chain(*names.values()))}
    size = {name: draw(st.sampled_from((1, 2, 3, 5, 17))) for name in letter}
    lhs = draw(st.permutations(names["b"] + names["k"] + names["m"]))
    rhs = draw(st.permutations(names["b"] + names["k"] + names["n"]))
    batch, contracted = draw(st.permutations(names["b"])), draw(st.permutations(names["k"]))
    places = lambda dims, side: tuple(side.index(d) for d in dims)  # noqa: E731
    numbers = (
        (places(contracted, lhs), places(contracted, rhs)),
        (places(batch, lhs), places(batch, rhs)),
    )
    out = batch + [d for d in lhs if d[0] == "m"] + [d for d in rhs if d[0] == "n"]
    text = lambda dims: "".join(letter[d] for d in dims)  # noqa: E731
    random = np.random.default_rng(draw(st.integers(0, 9)))
    array = lambda dims: random.integers(-3, 4, [size[d] for d in dims])  # noqa: E731
    return Case(array(lhs), array(rhs), numbers, f"{text(lhs)},{text(rhs)}->{text(out)}")


def problem_of(found: Fold) -> Matmul:
    lhs, rhs = found.lhs.layout, found.rhs.layout
    return Matmul(found.m, found.n, found.k, batch=found.batch, lhs=lhs, rhs=rhs)


def strided(x: np.ndarray, operand: Operand, shape, ld: int, batch_strides) -> np.ndarray:
    """`x` as the kernel reads it: flat memory, the problem's strides."""
    moved = x if operand.perm is None else x.transpose(operand.perm)
    flat = np.ascontiguousarray(moved).reshape(-1)
    matrix = (1, ld) if operand.layout.transposed else (ld, 1)
    steps = tuple(s * flat.itemsize for s in (*batch_strides, *matrix))
    return np.lib.stride_tricks.as_strided(flat, shape, steps)


def evaluate(found: Fold, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    p = problem_of(found)
    a = strided(lhs, found.lhs, (*p.batch, p.m, p.k), p.lhs_ld, p.lhs_batch_strides)
    b = strided(rhs, found.rhs, (*p.batch, p.k, p.n), p.rhs_ld, p.rhs_batch_strides)
    return a @ b


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_folded_product_is_the_einsum(case: Case) -> None:
    found = fold(case.lhs.shape, case.rhs.shape, case.dimension_numbers)
    want = np.einsum(case.subscripts, case.lhs, case.rhs)
    np.testing.assert_array_equal(evaluate(found, case.lhs, case.rhs).reshape(want.shape), want)


# name: (lhs shape, rhs shape, dimension numbers, batch, layout)
IN_PLACE = {
    "a plain product": ((5, 3), (3, 4), (((1,), (0,)), ((), ())), (), "nn"),
    "leading dimensions are rows": ((2, 5, 3), (3, 4), (((2,), (0,)), ((), ())), (), "nn"),
    "a weight gradient": ((8, 5, 3), (8, 5, 4), (((0, 1), (0, 1)), ((), ())), (), "tn"),
    "an activation gradient": ((8, 5, 4), (3, 4), (((2,), (1,)), ((), ())), (), "nt"),
    "attention scores": (
        (2, 24, 3, 8), (2, 20, 3, 8), (((3,), (3,)), ((0, 2), (0, 2))), (2, 3), "nt",
    ),
    "attention values": (
        (2, 3, 24, 20), (2, 20, 3, 8), (((3,), (1,)), ((0, 1), (0, 2))), (2, 3), "nn",
    ),
    "heads into features": ((2, 9, 3, 8), (3, 8, 16), (((2, 3), (0, 1)), ((), ())), (), "nn"),
    "features into heads": ((2, 9, 16), (16, 3, 8), (((2,), (0,)), ((), ())), (), "nn"),
    "vmap of lhs over a batched product": (
        (3, 2, 16, 8), (2, 8, 4), (((3,), (1,)), ((1,), (0,))), (2, 3), "nn",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_no_copy_for(name: str) -> None:
    lhs, rhs, numbers, batch, layout = IN_PLACE[name]
    found = fold(lhs, rhs, numbers)
    assert (found.copied, found.batch, problem_of(found).layout) == (0, batch, layout)


def test_the_smaller_operand_is_copied_when_one_must_be() -> None:
    found = fold((64, 3, 5), (5, 3, 2), (((1, 2), (1, 0)), ((), ())))
    assert found.lhs.perm is None
    assert found.copied == 30


def test_thin_rows_are_copied_rather_than_batched() -> None:
    found = fold((3, 2, 4, 8), (2, 8, 4), (((3,), (1,)), ((1,), (0,))))
    assert (found.batch, found.m) == ((2,), 12)
