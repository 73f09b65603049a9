"""What a convolution asks for, as one hashable record, and the kernels that can serve it.

In: the parameters of lax's own primitive. Out: types, factors, a Plan. Kernels take one group,
one or two spatial dimensions, NHWC images (batch first, channels last), filters in any order:

* a filter of one pixel without padding is a plain product, of a strided image where it strides;
* an executor with convolutions gets a Conv2d;
* one without (the host) gets the product of image patches with the filter;
* a filter's gradient is the product of transposed patches with the result's cotangent.

It must not know executors, primitives or meshes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpipe.errors import UnsupportedError
from jaxpipe.ops import compat, plan
from jaxpipe.ops.epilogue import Fusion, accumulator
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.options import Options
from jaxpipe.ops.plan import Abilities, Plan
from jaxpipe.problem import Conv2d, Matmul

Pair = tuple[int, int]
SPATIAL = ("h", "w", "d")


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """lax.conv_general_dilated with these parameters, canonical as its primitive holds them.

    `sequence` are (name, value) pairs of everything but precision, preferred_element_type and
    out_sharding.
    """

    sequence: tuple[tuple[str, Any], ...]
    precision: Any = None
    preferred_element_type: Any = None
    out_sharding: Any = None
    options: Options = field(default_factory=Options)

    @staticmethod
    def of(params: dict[str, Any], options: Options) -> ConvSpec:
        """The spec of the parameters of a conv_general_dilated equation."""
        own = ("precision", "preferred_element_type", "out_sharding")
        rest = tuple(sorted((k, v) for k, v in params.items() if k not in own))
        precision, preferred, sharding = (params.get(name) for name in own)
        return ConvSpec(rest, precision, preferred, sharding, options)

    def get(self, name: str) -> Any:
        """One parameter by its name in lax."""
        return dict(self.sequence)[name]

    @property
    def op(self) -> str:
        """ "conv"."""
        return "conv"

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of lax's primitive."""
        return {
            **dict(self.sequence), "precision": self.precision,
            "preferred_element_type": self.preferred_element_type,
            "out_sharding": self.out_sharding,
        }  # fmt: skip

    def __repr__(self) -> str:
        g = self.get
        parts = [
            f"strides={g('window_strides')} padding={g('padding')}",
            f"dilation={g('lhs_dilation')},{g('rhs_dilation')}",
            f"groups={g('feature_group_count')},{g('batch_group_count')}",
            "x".join("".join(map(str, dims)) for dims in g("dimension_numbers")),
        ]
        if self.preferred_element_type is not None:
            parts.append(f"-> {jnp.dtype(self.preferred_element_type).name}")
        if self.precision is not None:
            parts.append(str(self.precision))
        if self.options != Options():
            parts.append(str(self.options))
        return " ".join(parts).replace(", ", ",")

    # -------------------------------------------------------------- meaning
    def result_type(self, lhs: Any, rhs: Any) -> Any:
        """lax's own type rule, and its errors."""
        return compat.abstract_eval(compat.conv_general_dilated_p, lhs, rhs, **self.params)

    def reference(self, lhs: Any, rhs: Any, wide: bool = False) -> Any:
        """The same in lax; `wide` keeps the accumulator's type."""
        params = self.params
        if wide:
            out = self.result_type(jax.typeof(lhs), jax.typeof(rhs))
            params["preferred_element_type"] = accumulator(out.dtype)
        return compat.conv_general_dilated_p.bind(lhs, rhs, **params)

    def describe(self, lhs: Any, rhs: Any) -> str:
        """Short text for people."""
        return f"conv {lhs.str_short()} x {rhs.str_short()} {self!r}"

    # -------------------------------------------------------------- dimensions
    def factors(self, lhs_ndim: int, rhs_ndim: int) -> Factors:
        """Batch and output channels split freely, input channels are summed, pixels stay whole."""
        numbers = self.get("dimension_numbers")
        spatial = SPATIAL[: lhs_ndim - 2]
        inside = tuple(f"in_{s}" for s in spatial)
        window = tuple(f"window_{s}" for s in spatial)
        outside = tuple(f"out_{s}" for s in spatial)
        return Factors(
            lhs=_placed(numbers.lhs_spec, ("n", "i", *inside)),
            rhs=_placed(numbers.rhs_spec, ("o", "i", *window)),
            out=_placed(numbers.out_spec, ("n", "o", *outside)),
            reduced=("i",),
            whole=(*inside, *window, *outside),
            bias=("o",),
        )

    def bias_shape(self, lhs: Any, rhs: Any) -> tuple[Any, ...]:
        """One element an output channel."""
        return (rhs.shape[self.get("dimension_numbers").rhs_spec[0]],)

    # -------------------------------------------------------------- kernels
    def plan(self, fusion: Fusion, lhs: Any, rhs: Any, bias: Any, able: Abilities) -> Plan:
        """How kernels serve this; UnsupportedError says why none does."""
        plan.require_concrete("conv", lhs.shape, rhs.shape)
        out = self.result_type(lhs, rhs)
        types = plan.dtypes(lhs.dtype, rhs.dtype, out.dtype, fusion)
        self._require_plain()
        if 0 in (*lhs.shape, *rhs.shape, *out.shape):
            raise UnsupportedError("an empty convolution: nothing to launch")
        self._require_images()
        shape = Geometry.of(self, lhs, rhs, out)
        words: dict[str, Any] = dict(
            dtype=types.operand,
            out_dtype=types.result,
            epilogue=plan.epilogue(fusion, None if bias is None else bias.dtype),
            precision=plan.precision(self.precision, types.operand, has_tf32=able.has_tf32),
        )
        if shape.is_pixel:
            return Plan(shape.product(**words), types, shape.strided_image, shape.filter_matrix)
        if able.has_conv:
            return Plan(shape.convolution(**words), types, shape.image, shape.filter_hwio)
        return Plan(shape.product(**words), types, shape.patches, shape.filter_matrix)

    def _require_plain(self) -> None:
        """One group, no dilated image, no cropping, one or two spatial dimensions."""
        g = self.get
        if len(g("window_strides")) not in (1, 2):
            raise UnsupportedError(
                f"{len(g('window_strides'))} spatial dimensions: kernels take one or two"
            )
        if (g("feature_group_count"), g("batch_group_count")) != (1, 1):
            raise UnsupportedError(
                f"{g('feature_group_count')} feature and {g('batch_group_count')} batch groups: "
                "kernels take one of each"
            )
        if set(g("lhs_dilation")) != {1}:
            raise UnsupportedError(f"a dilated image {g('lhs_dilation')}: kernels dilate filters")
        if min((p for pair in g("padding") for p in pair), default=0) < 0:
            raise UnsupportedError(f"padding {g('padding')}: kernels do not crop")

    def _require_images(self) -> None:
        numbers = self.get("dimension_numbers")
        last = len(numbers.lhs_spec) - 1
        channels_last = (0, last, *range(1, last))
        if numbers.lhs_spec != channels_last or numbers.out_spec != channels_last:
            raise UnsupportedError(
                f"image dimensions {numbers.lhs_spec} -> {numbers.out_spec}: kernels take batch "
                f"first and channels last {channels_last}"
            )


def _placed(spec: tuple[int, ...], letters: tuple[str, ...]) -> tuple[str, ...]:
    """Letters in memory order: spec[i] is the dimension of letters[i]."""
    return tuple(letters[spec.index(dim)] for dim in range(len(spec)))


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of an NHWC convolution; one spatial dimension is a height of one."""

    batch: int
    size: Pair
    in_channels: int
    out_channels: int
    window: Pair
    out: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    filter_order: tuple[int, ...]

    @staticmethod
    def of(spec: ConvSpec, lhs: Any, rhs: Any, out: Any) -> Geometry:
        numbers = spec.get("dimension_numbers")
        o, i, *window = numbers.rhs_spec
        return Geometry(
            batch=lhs.shape[0],
            size=_two(lhs.shape[1:-1], 1),
            in_channels=lhs.shape[-1],
            out_channels=rhs.shape[o],
            window=_two(tuple(rhs.shape[d] for d in window), 1),
            out=_two(out.shape[1:-1], 1),
            stride=_two(spec.get("window_strides"), 1),
            padding=_two(spec.get("padding"), (0, 0)),
            dilation=_two(spec.get("rhs_dilation"), 1),
            filter_order=(*window, i, o),
        )

    @property
    def is_pixel(self) -> bool:
        """A filter of one pixel and no padding: a plain product."""
        return self.window == (1, 1) and self.padding == ((0, 0), (0, 0))

    @property
    def k(self) -> int:
        """Terms of each sum."""
        return math.prod(self.window) * self.in_channels

    def product(self, **words: Any) -> Matmul:
        """Pixels times filter matrix."""
        return Matmul(self.batch * math.prod(self.out), self.out_channels, self.k, **words)

    def convolution(self, **words: Any) -> Conv2d:
        """The Problem of an executor that has convolutions."""
        return Conv2d(
            self.batch, *self.size, self.in_channels, self.out_channels, self.window,
            self.stride, self.padding, self.dilation, **words,
        )  # fmt: skip

    # -------------------------------------------------------------- operands
    def image(self, x: Any) -> Any:
        """NHWC."""
        return x.reshape(self.batch, *self.size, self.in_channels)

    def strided_image(self, x: Any) -> Any:
        """Every stride-th pixel."""
        return self.image(x)[:, :: self.stride[0], :: self.stride[1]]

    def filter_hwio(self, w: Any) -> Any:
        """[height, width, in, out]."""
        return lax.transpose(w, self.filter_order).reshape(
            *self.window, self.in_channels, self.out_channels
        )

    def filter_matrix(self, w: Any) -> Any:
        """[height * width * in, out]."""
        return self.filter_hwio(w).reshape(self.k, self.out_channels)

    def patches(self, x: Any) -> Any:
        """[batch, out height, out width, height * width * in]: one row a result pixel."""
        padded = jnp.pad(self.image(x), ((0, 0), *self.padding, (0, 0)))
        views = [
            self._view(padded, h, w) for h in range(self.window[0]) for w in range(self.window[1])
        ]
        return jnp.concatenate(views, axis=-1)

    def _view(self, padded: Any, h: int, w: int) -> Any:
        """What filter pixel (h, w) meets at every result pixel."""
        start = (h * self.dilation[0], w * self.dilation[1])
        stop = [
            s + (n - 1) * step + 1 for s, n, step in zip(start, self.out, self.stride, strict=True)
        ]
        rows, cols = (slice(a, b, c) for a, b, c in zip(start, stop, self.stride, strict=True))
        return padded[:, rows, cols]


def _two(values: Any, filler: Any) -> Any:
    """Two spatial dimensions, a leading `filler` for a missing one."""
    return (filler, *values)[-2:]
