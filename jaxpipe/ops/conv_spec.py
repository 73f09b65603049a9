"""What a convolution asks for, as one hashable record, and the kernels that can serve it.

In: the parameters of lax's own primitive. Out: types, factors, a Plan. Kernels take one group, one
or two spatial dimensions, images with batch first and channels last, filters in any order:

* a filter of one pixel without padding is a plain product, of a strided image where it strides;
* a dilated or cropped image (an image's gradient) is written out first;
* a filter's gradient is the product of transposed image patches with the result's cotangent.

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
from jaxpipe.ops import compat, plan, sizes
from jaxpipe.ops.epilogue import Fusion, accumulator
from jaxpipe.ops.factors import Factors
from jaxpipe.ops.options import Options
from jaxpipe.ops.plan import Abilities, Plan
from jaxpipe.problem import Conv2d, Layout, Matmul

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
        out = self.result_type(lhs, rhs)
        types = plan.dtypes(lhs.dtype, rhs.dtype, out.dtype, fusion, able)
        self._require_plain()
        if 0 in (*lhs.shape, *rhs.shape, *out.shape):
            raise UnsupportedError("an empty convolution: nothing to launch")
        plan.require_concrete("image or filter", self._made_for(lhs, rhs))
        words: dict[str, Any] = dict(
            dtype=types.operand,
            out_dtype=types.result,
            epilogue=plan.epilogue(fusion, None if bias is None else bias.dtype),
            precision=plan.precision(self.precision, types, able),
        )
        if self._is_filter_gradient:
            shape = Geometry.of_filter_gradient(self, lhs, rhs, out)
            if shape.window != (1, 1) and not able.has_patches:
                raise UnsupportedError(
                    f"the gradient of a {'x'.join(map(str, shape.window))} filter: a kernel would "
                    f"read every pixel {math.prod(shape.window)} times from a copy; 1x1 filters "
                    "are products"
                )
            result = shape.taps, shape.out_channels
            return Plan(shape.gradient(**words), types, result, shape.patches)
        self._require_images()
        shape = Geometry.of(self, lhs, rhs, out)
        if shape.is_pixel:
            result = shape.pixels, shape.out_channels
            product = shape.product(**words)
            return Plan(product, types, result, shape.strided_image, shape.filter_matrix)
        return Plan(shape.convolution(**words), types, out.shape, shape.image, shape.filter_hwio)

    def _made_for(self, lhs: Any, rhs: Any) -> tuple[Any, ...]:
        """Every size but the number of images, which a filter's gradient finds in both operands."""
        numbers = self.get("dimension_numbers")
        images = 0 if self._is_filter_gradient else numbers.lhs_spec[0]
        filters = rhs.shape[1:] if self._is_filter_gradient else rhs.shape
        return (*lhs.shape[:images], *lhs.shape[images + 1 :], *filters)

    def _require_plain(self) -> None:
        """One group, one or two spatial dimensions."""
        spatial = len(self.get("window_strides"))
        if spatial not in (1, 2):
            raise UnsupportedError(f"{spatial} spatial dimensions: kernels take one or two")
        groups = self.get("feature_group_count"), self.get("batch_group_count")
        if groups != (1, 1):
            raise UnsupportedError(
                f"{groups[0]} feature and {groups[1]} batch groups: kernels take one of each"
            )

    def _require_images(self) -> None:
        numbers = self.get("dimension_numbers")
        nhwc = _channels_last(len(numbers.lhs_spec))
        if numbers.lhs_spec != nhwc or numbers.out_spec != nhwc:
            raise UnsupportedError(
                f"image dimensions {numbers.lhs_spec} -> {numbers.out_spec}: kernels take batch "
                f"first and channels last, {nhwc}"
            )

    @property
    def _is_filter_gradient(self) -> bool:
        """The form that lax gives the gradient of an NHWC convolution's HWIO filter."""
        numbers = self.get("dimension_numbers")
        last = len(numbers.lhs_spec) - 1
        swapped = (last, 0, *range(1, last))  # channels as batch, batch as channels
        hwio = (last - 1, last, *range(last - 1))
        sides = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
        return sides == (swapped, swapped, hwio) and set(self.get("lhs_dilation")) == {1}


def _channels_last(ndim: int) -> tuple[int, ...]:
    return (0, ndim - 1, *range(1, ndim - 1))


def _placed(spec: tuple[int, ...], letters: tuple[str, ...]) -> tuple[str, ...]:
    """Letters in memory order: spec[i] is the dimension of letters[i]."""
    return tuple(letters[spec.index(dim)] for dim in range(len(spec)))


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of an NHWC convolution; one spatial dimension is a height of one.

    size, padding and image_dilation are the caller's; padding may be negative (cropping).
    """

    batch: int
    size: Pair
    in_channels: int
    out_channels: int
    window: Pair
    out: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    image_dilation: Pair = (1, 1)
    filter_order: tuple[int, ...] = ()

    @staticmethod
    def of(spec: ConvSpec, lhs: Any, rhs: Any, out: Any) -> Geometry:
        """Of a convolution of an image."""
        o, i, *window = spec.get("dimension_numbers").rhs_spec
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
            image_dilation=_two(spec.get("lhs_dilation"), 1),
            filter_order=(*window, i, o),
        )

    @staticmethod
    def of_filter_gradient(spec: ConvSpec, lhs: Any, rhs: Any, out: Any) -> Geometry:
        """Of the convolution whose filter's gradient this is: rhs is the result's cotangent."""
        return Geometry(
            batch=lhs.shape[0],
            size=_two(lhs.shape[1:-1], 1),
            in_channels=lhs.shape[-1],
            out_channels=rhs.shape[-1],
            window=_two(out.shape[:-2], 1),
            out=_two(rhs.shape[1:-1], 1),
            stride=_two(spec.get("rhs_dilation"), 1),
            padding=_two(spec.get("padding"), (0, 0)),
            dilation=_two(spec.get("window_strides"), 1),
        )

    @property
    def is_pixel(self) -> bool:
        """A filter of one pixel, no padding, no dilation: a plain product."""
        plain = (self.window, self.image_dilation) == ((1, 1), (1, 1))
        return plain and self.padding == ((0, 0), (0, 0))

    @property
    def pixels(self) -> int:
        """Pixels of the result."""
        return self.batch * math.prod(self.out)

    @property
    def taps(self) -> int:
        """Terms of each sum: window * in_channels."""
        return math.prod(self.window) * self.in_channels

    # -------------------------------------------------------------- problems
    def product(self, **words: Any) -> Matmul:
        """Pixels times filter matrix."""
        return sizes.matmul(self.pixels, self.out_channels, self.taps, **words)

    def gradient(self, **words: Any) -> Matmul:
        """Transposed patches times cotangent: [taps, pixels] x [pixels, out]."""
        return sizes.matmul(
            self.taps, self.out_channels, self.pixels, lhs=Layout(transposed=True), **words
        )

    def convolution(self, **words: Any) -> Conv2d:
        """The convolution of what `image` gives."""
        (top, bottom), (left, right) = self.padding
        outer = ((max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)))
        height, width = (self._written(axis) for axis in (0, 1))
        return sizes.conv2d(
            self.batch, height=height, width=width, in_channels=self.in_channels,
            out_channels=self.out_channels, kernel=self.window, stride=self.stride, padding=outer,
            dilation=self.dilation, **words,
        )  # fmt: skip

    def _written(self, axis: int) -> int:
        """Size after dilating and cropping."""
        cropped = sum(min(p, 0) for p in self.padding[axis])
        return (self.size[axis] - 1) * self.image_dilation[axis] + 1 + cropped

    # -------------------------------------------------------------- operands
    def image(self, x: Any) -> Any:
        """NHWC; zeros between pixels where the image is dilated, cropped where padding is < 0."""
        x = self._nhwc(x)
        spatial = [
            (*(min(p, 0) for p in pair), step - 1)
            for pair, step in zip(self.padding, self.image_dilation, strict=True)
        ]
        if all(config == (0, 0, 0) for config in spatial):
            return x
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *spatial, (0, 0, 0)])

    def _nhwc(self, x: Any) -> Any:
        return x.reshape(self.batch, *self.size, self.in_channels)

    def strided_image(self, x: Any) -> Any:
        """Every stride-th pixel."""
        return self._nhwc(x)[:, :: self.stride[0], :: self.stride[1]]

    def filter_hwio(self, w: Any) -> Any:
        """[height, width, in, out]."""
        moved = lax.transpose(w, self.filter_order)
        return moved.reshape(*self.window, self.in_channels, self.out_channels)

    def filter_matrix(self, w: Any) -> Any:
        """[taps, out]."""
        return self.filter_hwio(w).reshape(self.taps, self.out_channels)

    def patches(self, x: Any) -> Any:
        """[pixels, taps]: what each filter tap meets at each result pixel."""
        spatial = [(*pair, 0) for pair in self.padding]
        zero = jnp.zeros((), x.dtype)
        padded = lax.pad(self._nhwc(x), zero, [(0, 0, 0), *spatial, (0, 0, 0)])
        taps = [(h, w) for h in range(self.window[0]) for w in range(self.window[1])]
        views = jnp.concatenate([self._view(padded, h, w) for h, w in taps], axis=-1)
        return views.reshape(self.pixels, self.taps)

    def _view(self, padded: Any, h: int, w: int) -> Any:
        """What filter tap (h, w) meets at every result pixel."""
        start = (h * self.dilation[0], w * self.dilation[1])
        counts = zip(start, self.out, self.stride, strict=True)
        rows, cols = (slice(a, a + (n - 1) * step + 1, step) for a, n, step in counts)
        return padded[:, rows, cols]


def _two(values: Any, filler: Any) -> Any:
    """Two spatial dimensions, a leading `filler` for a missing one."""
    return (filler, *values)[-2:]
