"""A problem's key leads back to the problem."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpipe.dtypes import OPERAND_DTYPES
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.errors import ProblemError, RecordError
from jaxpipe.keys import problem_from_key
from jaxpipe.problem import Conv2d, Layout, Matmul

SIZE = st.integers(1, 5000)
DTYPE = st.sampled_from(OPERAND_DTYPES)
EPILOGUE = st.builds(
    Epilogue,
    alpha=st.sampled_from([1.0, 0.5, -2.0, 1e6, 1e-7, 8**-0.5])
    | st.floats(allow_nan=False, allow_infinity=False),
    bias=st.sampled_from(["none", "column", "row"]),
    bias_dtype=st.sampled_from(["", "float32"]),
    activation=st.sampled_from(ACTIVATIONS),
    residual=st.booleans(),
    save_preactivation=st.booleans(),
    residual_first=st.booleans(),
)
GATED = st.builds(
    Epilogue,
    bias=st.sampled_from(["none", "column"]),
    residual=st.just(True),
    derivative=st.sampled_from(ACTIVATIONS[1:]),
)
MATMUL = st.builds(
    Matmul,
    m=SIZE,
    n=SIZE,
    k=SIZE,
    batch=st.sampled_from([(), (3,), (2, 5)]),
    dtype=DTYPE,
    out_dtype=st.just("float32"),
    lhs=st.builds(Layout, st.booleans()),
    rhs=st.builds(Layout, st.booleans()),
    epilogue=EPILOGUE | GATED,
    precision=st.sampled_from(["tf32", "float32"]),
)
PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))
PAD = st.tuples(st.integers(0, 3), st.integers(0, 3))
CONV = st.builds(
    Conv2d,
    batch=SIZE,
    height=SIZE,
    width=SIZE,
    in_channels=SIZE,
    out_channels=SIZE,
    kernel=PAIR,
    stride=PAIR,
    padding=st.tuples(PAD, PAD),
    dilation=PAIR,
    dtype=DTYPE,
    epilogue=EPILOGUE,
)


@given(st.one_of(MATMUL, CONV))
def test_the_key_leads_back_to_a_problem_with_that_key(problem):
    again = problem_from_key(problem.key)
    assert again.key == problem.key
    assert again.epilogue.alpha == problem.epilogue.alpha
    assert again.epilogue.residual_first == problem.epilogue.residual_first


def test_scales_that_differ_late_have_keys_of_their_own():
    alphas = (0.125, 0.1250000001, 8**-0.5, 0.353553, 2, 2.0000001)
    keys = {Matmul(8, 8, 8, epilogue=Epilogue(alpha=a)).key for a in alphas}
    assert len(keys) == len(alphas)
    assert Matmul(8, 8, 8, epilogue=Epilogue(alpha=2)).key.endswith(" alpha=2")


def test_leading_dimensions_and_batch_strides_survive():
    problem = Matmul(8, 8, 8, (2, 3), lhs=Layout(False, 16, (1024, 0)), rhs=Layout(True))
    assert problem_from_key(problem.key) == problem


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(512, 8, 8, dtype="float32", dynamic=("m",), epilogue=Epilogue(bias="column")),
        Matmul(512, 8, 8, (512, 3), lhs=Layout(batch_strides=(0, 64)), dynamic=("m", "batch0")),
        Conv2d(512, 8, 8, 8, 8, (3, 3), dynamic=("batch",)),
    ],
    ids=str,
)
def test_sizes_that_are_left_to_the_call_survive(problem):
    assert problem_from_key(problem.key) == problem
    assert problem_from_key(problem.nominal.key) == problem.nominal != problem


@pytest.mark.parametrize(("dynamic", "kept"), [((), ()), (("m",), (64,)), (("batch0",), ())])
def test_strides_that_look_dense_at_the_nominal_size_are_kept(dynamic, kept):
    problem = Matmul(8, 4, 8, (5,), lhs=Layout(batch_strides=(64,)), dynamic=dynamic)
    assert problem.lhs.batch_strides == kept


@pytest.mark.parametrize("dynamic", [("k", "m"), ("rows",), ("batch0",)])
def test_only_sizes_that_a_problem_has_are_dynamic(dynamic):
    with pytest.raises(ProblemError, match="dynamic"):
        Matmul(8, 8, 8, dynamic=dynamic)


@pytest.mark.parametrize(
    "text", ["", "matmul", "dot 8x8x8 nn", "matmul 8x8 nn float32->float32 tf32", "conv2d 1->2"]
)
def test_other_text_is_refused_by_name(text):
    with pytest.raises(RecordError, match="not a problem key"):
        problem_from_key(text)
