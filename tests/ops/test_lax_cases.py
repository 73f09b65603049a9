"""What JAX's own tests sample, through our kernels on the host: values and dtypes of lax."""

import jax
import numpy as np
import pytest

import jaxpipe
from tests.ops.lax_cases import Case, draw
from tests.tolerance import assert_close

# 64-bit types without x64 are narrowed with a warning, in lax and in jaxpipe alike.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
CHUNK = 25
SLOW_CHUNKS = 82  # 2,050 cases
FAST_CHUNKS = 3


def outcomes(module, cases: list[Case], seed: int) -> list:
    """Each case's result, all compiled as one program; or the type of lax's refusal."""
    operands = [case.operands(seed + i) for i, case in enumerate(cases)]
    refused = {}
    for i, (case, (x, y)) in enumerate(zip(cases, operands, strict=True)):
        try:
            jax.eval_shape(lambda x, y, case=case: case.call(module, x, y), x, y)
        except Exception as error:
            refused[i] = type(error)

    def program(operands):
        return [
            None if i in refused else case.call(module, x, y)
            for i, (case, (x, y)) in enumerate(zip(cases, operands, strict=True))
        ]

    results = jax.device_get(jax.jit(program)(operands))
    return [refused.get(i, result) for i, result in enumerate(results)]


def check(seed: int) -> int:
    """Compare one chunk; the number of products that kernels took."""
    cases = draw(CHUNK, seed)
    with jaxpipe.coverage() as ledger:
        got = outcomes(jaxpipe, cases, seed)
    want = outcomes(jax.lax, cases, seed)
    for case, g, w in zip(cases, got, want, strict=True):
        if isinstance(w, type):
            assert g is w, case
            continue
        try:
            assert_close(g, np.asarray(w), case.terms, slack=4)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error
    return ledger.taken


@pytest.mark.parametrize("seed", range(FAST_CHUNKS))
def test_cases_of_lax(seed: int) -> None:
    assert check(seed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])
@pytest.mark.parametrize("seed", range(1000, 1000 + SLOW_CHUNKS // 2))
def test_many_cases_of_lax(seed: int, x64: bool) -> None:
    with jax.enable_x64(x64):
        check(2 * seed + x64)
