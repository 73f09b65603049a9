"""What is computed: matrix products and convolutions with their epilogues, as frozen data.

In: shapes, dtypes, memory layouts, epilogue. Out: derived sizes, flops, bytes, a stable key.
It must not know schedules, devices or JAX. Conventions: a product is
`out[b, m, n] = epilogue(sum_k lhs[b, m, k] * rhs[b, k, n])`, the result dense and row-major.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from jaxpipe.dtypes import DTYPES, OPERAND_DTYPES, dtype_info
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import DtypeError, ProblemError

Precision = Literal["tf32", "float32"]

# Sizes that may be left to the call: fields of the problem, batchI is batch[I].
MATMUL_SIZES = ("m", "n", "k", "batch0", "batch1")
CONV2D_SIZES = ("batch",)


@dataclass(frozen=True, slots=True)
class Layout:
    """How one operand lies in memory; the innermost stride is always one element.

    transposed: lhs is stored [k][m] (else [m][k]), rhs is stored [n][k] (else [k][n]).
    ld: elements from one stored row to the next; 0 means dense. batch_strides: elements from one
    batch entry to the next, one per batch dimension; () means dense; an entry 0 broadcasts.
    """

    transposed: bool = False
    ld: int = 0
    batch_strides: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Matmul:
    """A (batched) matrix product. m, n, k >= 0; batch has 0 to 2 dimensions.

    dtype is the operands', out_dtype the result's ("" picks the dtype's default). precision only
    matters for float32: "float32" is true float32, "tf32" permits TensorFloat-32 products.
    Dense layouts are normalised to ld=0, batch_strides=(), so equal problems compare equal.
    dynamic names sizes of MATMUL_SIZES that are known when a call runs; their value here is the one
    that a schedule is chosen for. A dense layout follows them, other strides do not change.
    Raises ProblemError or DtypeError.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    dtype: str = "bfloat16"
    out_dtype: str = ""
    lhs: Layout = field(default_factory=Layout)
    rhs: Layout = field(default_factory=Layout)
    epilogue: Epilogue = field(default_factory=Epilogue)
    precision: Precision = "float32"
    dynamic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_sizes("matmul", {"m": self.m, "n": self.n, "k": self.k})
        _check_sizes("matmul", {f"batch[{i}]": b for i, b in enumerate(self.batch)})
        if len(self.batch) > 2:
            raise ProblemError(
                f"matmul with batch {self.batch}: at most 2 batch dimensions, fold them"
            )
        _check_dtypes(self)
        if self.precision not in get_args(Precision):
            raise ProblemError(f"unknown precision {self.precision!r}: use tf32 or float32")
        _check_dynamic("matmul", self.dynamic, MATMUL_SIZES[: 3 + len(self.batch)])
        for name, rows, cols in (("lhs", "m", "k"), ("rhs", "k", "n")):
            fixed = {rows, cols, "batch1"}.isdisjoint(self.dynamic)
            sizes = getattr(self, rows), getattr(self, cols)
            layout = _normal(getattr(self, name), self.batch, *sizes, name, fixed)
            object.__setattr__(self, name, layout)

    # ------------------------------------------------------------------ sizes
    @property
    def batch_size(self) -> int:
        """Number of independent products."""
        return math.prod(self.batch)

    @property
    def is_empty(self) -> bool:
        """True when the result has no element (nothing is launched)."""
        return self.m == 0 or self.n == 0 or self.batch_size == 0

    @property
    def accumulator(self) -> str:
        """dtype of the sums."""
        return DTYPES[self.dtype].accumulator

    @property
    def lhs_ld(self) -> int:
        """Elements between stored rows of lhs."""
        return self.lhs.ld or (self.m if self.lhs.transposed else self.k)

    @property
    def rhs_ld(self) -> int:
        """Elements between stored rows of rhs."""
        return self.rhs.ld or (self.k if self.rhs.transposed else self.n)

    @property
    def lhs_batch_strides(self) -> tuple[int, ...]:
        """Elements between batch entries of lhs, one per batch dimension."""
        return self.lhs.batch_strides or _dense_batch(self.batch, self.m * self.k)

    @property
    def rhs_batch_strides(self) -> tuple[int, ...]:
        """Elements between batch entries of rhs, one per batch dimension."""
        return self.rhs.batch_strides or _dense_batch(self.batch, self.k * self.n)

    @property
    def bias_dtype(self) -> str:
        """dtype of the bias operand (the result's unless the epilogue says otherwise)."""
        return self.epilogue.bias_dtype or self.out_dtype

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product itself."""
        return 2 * self.batch_size * self.m * self.n * self.k

    @property
    def bytes_min(self) -> int:
        """Bytes that must cross device memory at least once: operands in, results out."""
        size, out = DTYPES[self.dtype].size_bytes, DTYPES[self.out_dtype].size_bytes
        lhs = _distinct(self.batch, self.lhs_batch_strides) * self.m * self.k
        rhs = _distinct(self.batch, self.rhs_batch_strides) * self.k * self.n
        outs = 1 + self.epilogue.save_preactivation + self.epilogue.residual
        return (lhs + rhs) * size + outs * self.batch_size * self.m * self.n * out

    @property
    def nominal(self) -> Matmul:
        """The same with its dynamic sizes fixed at their nominal values."""
        return replace(self, dynamic=())

    @property
    def sizes(self) -> dict[str, int]:
        """Values by the names of MATMUL_SIZES."""
        return dict(zip(MATMUL_SIZES, (self.m, self.n, self.k, *self.batch), strict=False))

    # ------------------------------------------------------------------ text
    @property
    def layout(self) -> str:
        """ "nn", "nt", "tn" or "tt" as BLAS names them."""
        return "nt"[self.lhs.transposed] + "nt"[self.rhs.transposed]

    @property
    def key(self) -> str:
        """Stable text that identifies the problem; equal problems have equal keys."""
        parts = ["matmul", "x".join(map(str, (*self.batch, self.m, self.n, self.k)))]
        parts += [self.layout, f"{self.dtype}->{self.out_dtype}"]
        if self.dtype == "float32":
            parts.append(self.precision)
        if self.lhs.ld or self.lhs.batch_strides:
            parts.append(f"lhs{self.lhs_ld}:{','.join(map(str, self.lhs_batch_strides))}")
        if self.rhs.ld or self.rhs.batch_strides:
            parts.append(f"rhs{self.rhs_ld}:{','.join(map(str, self.rhs_batch_strides))}")
        if not self.epilogue.is_identity:
            parts.append(self.epilogue.describe())
            if self.epilogue.bias != "none" and self.bias_dtype != self.out_dtype:
                parts.append(f"bias:{self.bias_dtype}")
        if self.dynamic:
            parts.append(f"dynamic:{','.join(self.dynamic)}")
        return " ".join(parts)

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class Conv2d:
    """A 2-D convolution (cross-correlation, as in lax): input NHWC, filter HWIO, result NHWC.

    padding is ((top, bottom), (left, right)), non-negative. stride and dilation (of the filter)
    are per dimension. One group. dynamic is () or ("batch",): images are counted when a call runs.
    Raises ProblemError or DtypeError.
    """

    batch: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    dtype: str = "bfloat16"
    out_dtype: str = ""
    epilogue: Epilogue = field(default_factory=Epilogue)
    precision: Precision = "float32"
    dynamic: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = ("batch", "height", "width", "in_channels", "out_channels")
        _check_sizes("conv2d", {name: getattr(self, name) for name in names})
        for name in ("kernel", "stride", "dilation"):
            if min(getattr(self, name)) < 1:
                raise ProblemError(f"conv2d with {name}={getattr(self, name)}: each must be >= 1")
        if min(p for pair in self.padding for p in pair) < 0:
            raise ProblemError(f"conv2d with padding={self.padding}: negative padding is XLA's")
        _check_dynamic("conv2d", self.dynamic, CONV2D_SIZES)
        _check_dtypes(self)

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return self._out(0, self.height)

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return self._out(1, self.width)

    def _out(self, axis: int, size: int) -> int:
        span = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        return max(0, (size + sum(self.padding[axis]) - span) // self.stride[axis] + 1)

    @property
    def nominal(self) -> Conv2d:
        """The same of the nominal number of images."""
        return replace(self, dynamic=())

    @property
    def sizes(self) -> dict[str, int]:
        """Values by the names of CONV2D_SIZES."""
        return {"batch": self.batch}

    @property
    def m(self) -> int:
        """Rows of the implicit product: one per output pixel."""
        return self.batch * self.out_height * self.out_width

    @property
    def n(self) -> int:
        """Columns of the implicit product: output channels."""
        return self.out_channels

    @property
    def k(self) -> int:
        """Terms of each sum: filter height * filter width * input channels, in this order."""
        return self.kernel[0] * self.kernel[1] * self.in_channels

    @property
    def batch_size(self) -> int:
        """Independent products of the implicit GEMM: always 1 (the batch is part of m)."""
        return 1

    @property
    def is_empty(self) -> bool:
        """True when the result has no element."""
        return self.m == 0 or self.n == 0

    @property
    def is_pointwise(self) -> bool:
        """True when it is a plain matrix product: 1x1, stride 1, no padding."""
        no_pad = all(p == 0 for pair in self.padding for p in pair)
        return self.kernel == (1, 1) and self.stride == (1, 1) and no_pad

    @property
    def accumulator(self) -> str:
        """dtype of the sums."""
        return DTYPES[self.dtype].accumulator

    @property
    def bias_dtype(self) -> str:
        """dtype of the bias operand."""
        return self.epilogue.bias_dtype or self.out_dtype

    @property
    def flops(self) -> int:
        """Multiplications and additions, those with padding zeros included."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_min(self) -> int:
        """Bytes that must cross device memory at least once."""
        size, out = DTYPES[self.dtype].size_bytes, DTYPES[self.out_dtype].size_bytes
        image = self.batch * self.height * self.width * self.in_channels
        outs = 1 + self.epilogue.save_preactivation + self.epilogue.residual
        return (image + self.k * self.n) * size + outs * self.m * self.n * out

    @property
    def key(self) -> str:
        """Stable text that identifies the problem."""
        shape = f"{self.batch}x{self.height}x{self.width}x{self.in_channels}"
        pad = ",".join(str(p) for pair in self.padding for p in pair)
        parts = ["conv2d", f"{shape}->{self.out_channels}", "k" + "x".join(map(str, self.kernel))]
        parts += [
            "s" + "x".join(map(str, self.stride)),
            f"p{pad}",
            "d" + "x".join(map(str, self.dilation)),
        ]
        parts.append(f"{self.dtype}->{self.out_dtype}")
        if self.dtype == "float32":
            parts.append(self.precision)
        if not self.epilogue.is_identity:
            parts.append(self.epilogue.describe())
            if self.epilogue.bias != "none" and self.bias_dtype != self.out_dtype:
                parts.append(f"bias:{self.bias_dtype}")
        if self.dynamic:
            parts.append(f"dynamic:{','.join(self.dynamic)}")
        return " ".join(parts)

    def __str__(self) -> str:
        return self.key


Problem = Matmul | Conv2d


def as_matmul(problem: Conv2d) -> Matmul:
    """A 1x1 convolution without stride or padding as the product that it is."""
    return Matmul(
        problem.m, problem.n, problem.k, dtype=problem.dtype, out_dtype=problem.out_dtype,
        epilogue=problem.epilogue, precision=problem.precision,
        dynamic=("m",) if problem.dynamic else (),
    )  # fmt: skip


def _check_sizes(what: str, sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 0:
            raise ProblemError(f"{what} with {name}={value!r}: sizes are whole numbers >= 0")


def _check_dynamic(what: str, dynamic: tuple[str, ...], sizes: tuple[str, ...]) -> None:
    if dynamic != tuple(name for name in sizes if name in dynamic):
        raise ProblemError(f"{what} with dynamic={dynamic}: use some of {sizes}, in this order")


def _check_dtypes(problem: Matmul | Conv2d) -> None:
    if problem.dtype not in OPERAND_DTYPES:
        raise DtypeError(
            f"operands of dtype {problem.dtype!r}: kernels take {', '.join(OPERAND_DTYPES)}"
        )
    if not problem.out_dtype:
        object.__setattr__(problem, "out_dtype", DTYPES[problem.dtype].default_out)
    out = dtype_info(problem.out_dtype)
    if problem.epilogue.derivative != "none" and not out.is_float:
        raise DtypeError(
            f"the derivative of {problem.epilogue.derivative} for {out.name} results: use a float "
            "out_dtype"
        )


def _dense_batch(batch: tuple[int, ...], matrix: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = matrix
    for size in reversed(batch):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _distinct(batch: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return math.prod(b for b, s in zip(batch, strides, strict=True) if s != 0)


def _normal(
    layout: Layout, batch: tuple[int, ...], rows: int, cols: int, name: str, fixed: bool
) -> Layout:
    """`layout` with dense values written as 0 and (); ProblemError where it cannot hold.

    Batch strides that are given stay where sizes are not `fixed`: they only look dense.
    """
    stored_rows, stored_cols = (cols, rows) if layout.transposed else (rows, cols)
    if layout.ld and layout.ld < stored_cols:
        raise ProblemError(
            f"{name} with ld={layout.ld}: stored rows have {stored_cols} elements, use ld >= that"
        )
    if layout.batch_strides and len(layout.batch_strides) != len(batch):
        raise ProblemError(
            f"{name} has {len(layout.batch_strides)} batch strides for {len(batch)} batch dims"
        )
    if layout.ld > stored_cols and stored_rows > 1 and batch and not layout.batch_strides:
        raise ProblemError(f"{name} with ld={layout.ld} and batch {batch}: give batch_strides too")
    if any(s < 0 for s in layout.batch_strides):
        raise ProblemError(f"{name} with batch strides {layout.batch_strides}: each must be >= 0")
    ld = 0 if layout.ld == stored_cols or stored_rows <= 1 else layout.ld
    dense = fixed and ld == 0 and layout.batch_strides == _dense_batch(batch, rows * cols)
    return Layout(layout.transposed, ld, () if dense else layout.batch_strides)
