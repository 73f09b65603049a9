"""Transformations x executors: every cell of docs/transformations.md is a test here.

The document is written from the same table that the tests are made of:
`python -m tests.ops.test_matrix > docs/transformations.md`.
"""

import pathlib
import re

import jax
import pytest

import jaxpipe
from tests.ops import ways
from tests.tolerance import assert_close

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "transformations.md"
PLAIN = (((1,), (0,)), ((), ()))
# column: (options, what a cell means)
RUN = {
    "host": dict(implementation="host"),
    "xla": dict(implementation="xla"),
    "interpret (sm_80)": dict(implementation="interpret", target="a100"),
    "interpret (sm_90a)": dict(implementation="interpret", target="h200"),
}
LOWERED = {
    "cuda (sm_80)": dict(implementation="cuda", target="a100"),
    "cuda (sm_90a)": dict(implementation="cuda", target="h200"),
}
# These run on the machine at hand by their nature; compiled for a GPU they are "jit".
NOT_LOWERED = ("eager", "disable_jit")
FAST = ("jit", "grad", "vmap of both", "scan")


def product(x, w):
    """In true float32, so that every column has the tolerance of float32."""
    return jaxpipe.dot_general(x, w, PLAIN, "highest")


def narrow(x, w):
    return jaxpipe.dot_general(x, w, PLAIN)


def cells(columns) -> list:
    """(way, column), the expensive ones marked slow."""
    return [
        pytest.param(way, column, marks=() if _is_fast(way, column) else pytest.mark.slow)
        for way in ways.WAYS
        for column in columns
        if column in RUN or way not in NOT_LOWERED
    ]


def _is_fast(way: str, column: str) -> bool:
    return way in FAST or column == "xla"


@pytest.mark.parametrize(("way", "column"), cells(RUN))
def test_runs(way: str, column: str) -> None:
    gpu = column.startswith("interpret")
    dtype = "bfloat16" if gpu else "float32"
    jax.clear_caches()  # what another test compiled is not lowered, nor counted, again
    with jaxpipe.options(**RUN[column]), jaxpipe.coverage() as ledger:
        got = ways.through(way, narrow if gpu else product, dtype)
    assert_close(got, ways.lax_outcome(way, dtype), ways.SIZE, slack=40 if gpu else 8)
    assert ledger.total > 0
    assert set(ledger.left) <= ({"asked for"} if column == "xla" else set())


@pytest.mark.parametrize(("way", "column"), cells(LOWERED))
def test_is_lowered_for_cuda(way: str, column: str) -> None:
    program = jax.jit(lambda *operands: ways.WAYS[way](narrow, *operands))
    with jaxpipe.options(**LOWERED[column]):
        traced = program.trace(*ways.operands("bfloat16"))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "jaxpipe_cuda_launch" in text
    assert re.search(r"stablehlo\.dot_general", text) is None


def render() -> str:
    """The document."""
    columns = [*RUN, *LOWERED]
    lines = [
        "# Transformations x executors",
        "",
        "Written by `python -m tests.ops.test_matrix`; every cell is a test of "
        "`tests/ops/test_matrix.py`. run: executed and equal to `jax.lax.dot_general` through the "
        "same transformation, every product on that executor. lowered: compiled to kernels for "
        "that architecture with no product left to XLA; nothing was run on a GPU.",
        "",
        "Gradients are products of their own (NN, NT and TN layouts, no transposed copies). Where "
        "one is followed by an activation's derivative, as between two dense layers, "
        "`jaxpipe.accelerate(jax.grad(loss))` makes both one kernel (its epilogue multiplies with "
        "the slope at the saved pre-activation); without it XLA does the second in a pass of its "
        "own. It takes products of `jaxpipe.dot` with activations, or a loss that was itself "
        "accelerated: `tests/ops/test_gradient_epilogue.py`.",
        "",
        "| transformation | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for way in ways.WAYS:
        marks = [_cell(way, column) for column in columns]
        lines.append(f"| {way} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"


def _cell(way: str, column: str) -> str:
    if column in RUN:
        return "run"
    return "as jit" if way in NOT_LOWERED else "lowered"


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text() == render()


if __name__ == "__main__":
    print(render(), end="")
