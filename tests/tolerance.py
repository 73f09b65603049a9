"""How far two correct results may be apart: one function of the sum's length and the dtype."""

from typing import Any

import jax
import numpy as np

# Unit roundoff of the type that results are stored in.
ROUNDOFF = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3,
}  # fmt: skip


def tolerance(k: int, dtype: Any) -> float:
    """Relative to the size of the result: one rounding of the store, and float32 sums of k terms
    in any order (their error grows like sqrt(k); the factor covers k up to a few thousand)."""
    store = ROUNDOFF.get(np.dtype(dtype).name, 0.0)
    sums = ROUNDOFF["float64" if np.dtype(dtype) == np.float64 else "float32"]
    return 2 * store + 8 * sums * max(k, 4) ** 0.5


def assert_close(got: Any, want: Any, k: int, slack: float = 1.0) -> None:
    """Equal trees of equal shapes and dtypes, elements within `slack` times the tolerance of
    the largest element; integers equal, NaN and infinities in the same places."""
    got_leaves, got_tree = jax.tree.flatten(got)
    want_leaves, want_tree = jax.tree.flatten(want)
    assert got_tree == want_tree, (got_tree, want_tree)
    for g, w in zip(got_leaves, want_leaves, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), (g.shape, g.dtype, w.shape, w.dtype)
        _assert_array(np.asarray(g), np.asarray(w), k, slack)


def _assert_array(got: np.ndarray, want: np.ndarray, k: int, slack: float) -> None:
    if np.issubdtype(got.dtype, np.integer) or got.dtype == bool:
        np.testing.assert_array_equal(got, want)
        return
    if np.issubdtype(got.dtype, np.complexfloating):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        return
    wide, reference = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(reference)
    np.testing.assert_array_equal(wide[~finite], reference[~finite])
    scale = np.abs(reference[finite]).max(initial=1e-30)
    limit = slack * tolerance(k, got.dtype) * scale
    error = np.abs(wide[finite] - reference[finite]).max(initial=0.0)
    assert error <= limit, f"error {error:.3e} of {scale:.3e}, allowed {limit:.3e} (k={k})"
