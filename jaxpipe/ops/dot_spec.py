"""What a product asks for, as one hashable record: DotSpec.

A spec knows its type rule, its meaning in lax, its dimensions as factors (for partitioning) and
how it becomes a kernel's Problem. It must not know executors, primitives or meshes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from jaxpipe.errors import UnsupportedError
from jaxpipe.ops import compat, plan, sizes
from jaxpipe.ops.epilogue import Fusion, accumulator
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.fold import DimensionNumbers, Fold, fold, free_dims
from jaxpipe.ops.options import Options
from jaxpipe.ops.plan import Abilities, Plan


@dataclass(frozen=True, slots=True)
class DotSpec:
    """lax.dot_general with these dimension numbers (plain ints, none negative).

    precision is lax's canonical form, preferred_element_type a dtype or None.
    """

    dimension_numbers: DimensionNumbers
    precision: Any = None
    preferred_element_type: Any = None
    out_sharding: Any = None
    options: Options = field(default_factory=Options)

    @property
    def op(self) -> str:
        """ "dot"."""
        return "dot"

    def __repr__(self) -> str:
        parts = [str(self.dimension_numbers).replace(" ", "")]
        if self.preferred_element_type is not None:
            parts.append(f"-> {self.preferred_element_type.name}")
        if self.precision is not None:
            parts.append(str(self.precision))
        if self.options != Options():
            parts.append(str(self.options))
        return " ".join(parts)

    # -------------------------------------------------------------- meaning
    def result_type(self, lhs: Any, rhs: Any) -> Any:
        """lax's own type rule: shape, dtype, sharding, varying axes, and its errors."""
        return compat.abstract_eval(
            compat.dot_general_p, lhs, rhs,
            dimension_numbers=self.dimension_numbers, precision=self.precision,
            preferred_element_type=self.preferred_element_type, out_sharding=self.out_sharding,
        )  # fmt: skip

    def reference(self, lhs: Any, rhs: Any, wide: bool = False) -> Any:
        """lax.dot_general; `wide` keeps the accumulator's type."""
        preferred = self.preferred_element_type
        if wide:
            preferred = accumulator(self.result_type(jax.typeof(lhs), jax.typeof(rhs)).dtype)
        return lax.dot_general(
            lhs, rhs, self.dimension_numbers, self.precision, preferred,
            out_sharding=self.out_sharding,
        )  # fmt: skip

    # -------------------------------------------------------------- dimensions
    def factors(self, lhs_ndim: int, rhs_ndim: int) -> Factors:
        """One letter a dimension, shared where batched or contracted."""
        return _factors(self.dimension_numbers, lhs_ndim, rhs_ndim)

    def bias_shape(self, lhs: Any, rhs: Any) -> tuple[Any, ...]:
        """Shape of a bias: rhs's free dimensions, the trailing ones of the result."""
        (_, rc), (_, rb) = self.dimension_numbers
        return tuple(rhs.shape[i] for i in free_dims(rhs.ndim, rc, rb))

    def mapped(
        self, ndims: tuple[int, int], dims: tuple[int | None, int | None], axis: Any = None
    ) -> tuple[DotSpec, int]:
        """The spec when vmap adds dimension dims[i] to operand i (None: not mapped), and where the
        new dimension is in the result. One product stays one product and no data moves.

        ndims are with the new dimensions; axis is the explicit mesh axis of the mapped dimension.
        """
        (lc, rc), (lb, rb) = self.dimension_numbers
        lhs_dim, rhs_dim = dims
        if lhs_dim is not None:
            lc, lb = _shifted(lc, lhs_dim), _shifted(lb, lhs_dim)
        if rhs_dim is not None:
            rc, rb = _shifted(rc, rhs_dim), _shifted(rb, rhs_dim)
        if lhs_dim is not None and rhs_dim is not None:
            lb, rb, out = (lhs_dim, *lb), (rhs_dim, *rb), 0
        elif lhs_dim is not None:
            out = len(lb) + free_dims(ndims[0], lc, lb).index(lhs_dim)
        else:
            assert rhs_dim is not None
            out = ndims[0] - len(lc) + free_dims(ndims[1], rc, rb).index(rhs_dim)
        sharding = _inserted(self.out_sharding, out, axis)
        return replace(self, dimension_numbers=((lc, rc), (lb, rb)), out_sharding=sharding), out

    # -------------------------------------------------------------- kernels
    def plan(self, fusion: Fusion, lhs: Any, rhs: Any, bias: Any, able: Abilities) -> Plan:
        """The strided product that this is; UnsupportedError says why no kernel takes it."""
        out = self.result_type(lhs, rhs)
        types = plan.dtypes(lhs.dtype, rhs.dtype, out.dtype, fusion, able)
        if 0 in (*lhs.shape, *rhs.shape):
            raise UnsupportedError("an empty product: nothing to launch")
        folded = fold(lhs.shape, rhs.shape, self.dimension_numbers)
        problem = sizes.matmul(
            folded.m, folded.n, folded.k, folded.batch, dtype=types.operand,
            out_dtype=types.result, lhs=folded.lhs.layout, rhs=folded.rhs.layout,
            epilogue=plan.epilogue(fusion, None if bias is None else bias.dtype),
            precision=plan.precision(self.precision, types, able),
        )  # fmt: skip
        shape = (*folded.batch, folded.m, folded.n)
        stored = _stored_lhs(folded) if "k" in problem.dynamic else None
        return Plan(problem, types, shape, _moved(folded.lhs.perm, stored), _moved(folded.rhs.perm))

    def describe(self, lhs: Any, rhs: Any) -> str:
        """`dot f32[8,16] x f32[16,4]`, with dimension numbers unless they are the usual."""
        return f"dot {lhs.str_short()} x {rhs.str_short()} {self!r}"


def _moved(
    perm: tuple[int, ...] | None, shape: tuple[Any, ...] | None = None
) -> Callable[[Any], Any]:
    """The transpose that a folded operand needs first, then its shape as it is stored, if given."""

    def move(x: Any) -> Any:
        moved = x if perm is None else lax.transpose(x, perm)
        return moved if shape is None else moved.reshape(shape)

    return plan.as_is if perm is None and shape is None else move


def _stored_lhs(folded: Fold) -> tuple[Any, ...]:
    """[batch..., m, k] as it lies: a kernel finds a symbolic k in these dimensions."""
    layout = folded.lhs.layout
    rows = (folded.k, folded.m) if layout.transposed else (folded.m, folded.k)
    return rows if set(layout.batch_strides) == {0} else (*folded.batch, *rows)


def _shifted(dims: tuple[int, ...], new: int) -> tuple[int, ...]:
    """Dimension numbers after dimension `new` was inserted."""
    return tuple(i + (i >= new) for i in dims)


def _inserted(sharding: Any, out: int, axis: Any) -> Any:
    if sharding is None:
        return None
    parts = list(sharding.spec)
    parts.insert(out, axis)
    return NamedSharding(sharding.mesh, PartitionSpec(*parts))


@functools.lru_cache(maxsize=1024)
def _factors(dn: DimensionNumbers, lhs_ndim: int, rhs_ndim: int) -> Factors:
    (lc, rc), (lb, rb) = dn
    lf, rf = free_dims(lhs_ndim, lc, lb), free_dims(rhs_ndim, rc, rb)
    lhs, rhs = {}, {}
    for kind, left, right in (("b", lb, rb), ("k", lc, rc)):
        for number, (i, j) in enumerate(zip(left, right, strict=True)):
            lhs[i] = rhs[j] = f"{kind}{number}"
    lhs |= {i: f"m{number}" for number, i in enumerate(lf)}
    rhs |= {j: f"n{number}" for number, j in enumerate(rf)}
    bias = tuple(rhs[j] for j in rf)
    return Factors(
        lhs=tuple(lhs[i] for i in range(lhs_ndim)),
        rhs=tuple(rhs[j] for j in range(rhs_ndim)),
        out=(*(lhs[i] for i in (*lb, *lf)), *bias),
        reduced=tuple(lhs[i] for i in lc),
        bias=bias,
    )
