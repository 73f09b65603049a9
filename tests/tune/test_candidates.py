"""The finite list: rows and parameters lead to each other, features are numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpipe.errors import TuningError
from jaxpipe.tune.candidates import Candidates
from tests.tune import spaces


@pytest.mark.parametrize("row", [0, 7, 55])
def test_parameters_lead_back_to_their_row(row):
    space = spaces.candidates()
    assert space.row(space.params(row)) == row


def test_parameters_are_plain_python_values():
    types = {type(value) for value in spaces.candidates().params(3).values()}
    assert types == {int, str, bool}


@pytest.mark.parametrize(
    "params",
    [{}, {"tile": 64}, {"tile": 128, "stages": 4, "order": "row", "swizzle": True}, {"tile": 65}],
    ids=["empty", "partial", "illegal combination", "unknown value"],
)
def test_what_is_no_candidate_has_no_row(params):
    assert spaces.candidates().row(params) is None


@given(st.data())
def test_matching_rows_agree_with_every_fixed_knob(data):
    space = spaces.candidates()
    fixed = data.draw(
        st.dictionaries(st.sampled_from(["tile", "order"]), st.sampled_from([16, 64, "row"]))
    )
    agreeing = {r for r in range(len(space)) if fixed.items() <= space.params(r).items()}
    assert set(np.flatnonzero(space.matching(fixed))) == agreeing


def test_the_nearest_allowed_row_differs_in_fewest_steps():
    space = spaces.candidates()
    allowed = space.matching({"order": "row"})
    near = space.nearest({"tile": 128, "stages": 4, "order": "row", "swizzle": True}, allowed)
    assert space.params(near) in (
        {"tile": 64, "stages": 4, "order": "row", "swizzle": True},
        {"tile": 128, "stages": 2, "order": "row", "swizzle": True},
    )


def test_features_are_standardised_and_words_become_columns():
    features = spaces.candidates().features
    assert features.shape == (56, 5)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), 1)


def test_a_knob_with_one_value_is_no_feature():
    space = Candidates({"a": np.array([1, 2]), "b": np.array([5, 5])})
    assert space.features.shape == (2, 1)


def test_extra_features_join_the_knobs():
    space = Candidates({"a": np.array([1, 2, 4])}, extra=np.array([[0.0], [5.0], [1.0]]))
    assert space.features.shape == (3, 2)


@pytest.mark.parametrize(
    ("knobs", "prior", "match"),
    [
        ({}, None, "equally long"),
        ({"a": np.array([])}, None, "non-empty"),
        ({"a": np.array([1, 2]), "b": np.array([1])}, None, "equally long"),
        ({"a": np.array([1, 1])}, None, "listed more than once"),
        ({"a": np.array([1, 2])}, np.array([0.0, np.inf]), "1 predictions are not finite"),
    ],
)
def test_a_bad_list_is_refused_with_values(knobs, prior, match):
    with pytest.raises(TuningError, match=match):
        Candidates(knobs, prior)
