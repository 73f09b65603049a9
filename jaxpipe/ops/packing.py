"""Weights in the order in which this CPU's kernels read them: `prepack`, `Packed`, and back.

A packed weight is an ordinary array (in a pytree node that remembers the shape), so jit, export
and checkpoints carry it like any other, and nothing can be stale. Packing and unpacking are
reshapes and transposes: linear, differentiable. The array is [panels, steps, columns, terms]:
column c of panel p is weight column p * columns + c, term t of step s is row s * terms + t, and
what lies beyond the weight is zero. It must not know products.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from jaxpipe.errors import DtypeError, ProblemError, UnsupportedError
from jaxpipe.target import host_device


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A weight [k, n] for `jaxpipe.dot`; made by `jaxpipe.prepack`, a pytree with one leaf."""

    data: Any
    shape: tuple[int, int]

    @property
    def dtype(self) -> Any:
        """The weight's dtype."""
        return self.data.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return len(self.shape)

    def __jax_array__(self) -> Any:
        """Refused: unpacking in every call would cost more than packing saves."""
        raise DtypeError(
            f"a packed {self.dtype.name} weight {self.shape} is no array: pass it as w of "
            "jaxpipe.dot without scales, or use its unpack()"
        )

    def unpack(self) -> Any:
        """The weight as an array [k, n]."""
        return unpack(self.data, self.shape)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, int]]:
        """The array is the leaf, the shape is static."""
        return (self.data,), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], leaves: tuple[Any]) -> Packed:
        """From the leaf, whatever stands in its place."""
        return cls(leaves[0], shape)


export.register_pytree_node_serialization(
    Packed,
    serialized_name="jaxpipe.Packed",
    serialize_auxdata=lambda shape: json.dumps(shape).encode(),
    deserialize_auxdata=lambda data: tuple(json.loads(data)),
)


def prepack(w: Any) -> Packed:
    """Weight w [k, n] for `jaxpipe.dot(x, prepack(w))`, rearranged once instead of in every call.

    The result has the same bits as with w. w is float32, bfloat16 or float16; n is padded to whole
    panels (32 columns on AVX-512). Works on arrays and on traced values. Gradients, other platforms
    and other CPUs' packings unpack first; a serialised program refuses to run on a CPU with other
    panels. Raises UnsupportedError for what has no packed form here, ProblemError for what is no
    matrix.
    """
    w = jnp.asarray(w)
    if w.ndim != 2:
        raise ProblemError(f"prepack of shape {w.shape}: it takes one matrix [k, n]; use jax.vmap")
    terms = words()[1].get(w.dtype.name)
    if terms is None:
        raise UnsupportedError(
            f"prepack of {w.dtype.name}: the {host_device().isa} kernels read packed "
            f"{', '.join(words()[1])}; pass the weight as it is"
        )
    return Packed(_pack(w, words()[0], terms), w.shape)


@functools.cache
def words() -> tuple[int, dict[str, int]]:
    """(columns of a panel, rows of a word by dtype) of this CPU's kernels."""
    kernels = host_device().kernels
    pairs = 2 if kernels.has_bf16 else 1
    return kernels.panel_cols, {"float32": 1, "bfloat16": pairs, "float16": 1}


def is_native(packed: Any) -> bool:
    """True when this CPU's kernels read a packed array of this type."""
    columns, terms = words()
    return tuple(packed.shape[2:]) == (columns, terms.get(jnp.dtype(packed.dtype).name))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _pack(w: Any, columns: int, terms: int) -> Any:
    k, n = w.shape
    whole = jnp.pad(w, ((0, -k % terms), (0, -n % columns)))
    steps, panels = whole.shape[0] // terms, whole.shape[1] // columns
    return whole.reshape(steps, terms, panels, columns).transpose(2, 0, 3, 1)


def unpack(data: Any, shape: tuple[int, int]) -> Any:
    """The weight of `shape` that `data` packs."""
    panels, steps, columns, terms = data.shape
    whole = data.transpose(1, 3, 0, 2).reshape(steps * terms, panels * columns)
    return whole[: shape[0], : shape[1]]


def operand_for(x: Any, w: Packed) -> Any:
    """x as an array of the packed weight's dtype; ProblemError where that would narrow it."""
    dtype = jnp.result_type(x, w.data)
    if dtype != w.dtype:
        raise ProblemError(
            f"dot of {jnp.asarray(x).dtype.name} with packed {w.dtype.name} weights would be "
            f"{dtype.name}: convert x, or prepack the weights as {dtype.name}"
        )
    return jnp.asarray(x, dtype)
