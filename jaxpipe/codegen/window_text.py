"""Copies of a convolution's input: rows are output pixels, the source is an NHWC image.

In: the Copy statements whose source has a Window. Out: lines, as in copy_text.py. Every step of a
thread keeps the offset of its pixel under filter position (0, 0) and one bit for each filter row
and column that stays inside the image; a copy adds the filter position's constant offset.
Source: research notes cuda.md section 6.
"""

from __future__ import annotations

from jaxpipe.codegen.copy_text import Operand, Site, Source, columns_kept
from jaxpipe.codegen.text import UNROLL, expression, plus
from jaxpipe.ir.nodes import Window

MASK_BITS = 32


def window_setup(o: Operand) -> list[str]:
    """Pixels and filter masks of a thread's steps."""
    w = _window(o)
    r, count, channels = o.role, len(o.plan.steps), o.source.shape[-1]
    tables, (row, column) = o.position()
    m = plus(expression(o.split(o.sites[0].copy.src.starts[0])[0]), row)
    kind = "long long" if is_large(o) else "int"
    lines = [
        *tables.values(),
        f"{kind} {r}_pixel[{count}];",
        *([f"unsigned {r}_inside[{count}];"] if has_border(o) else []),
        UNROLL,
        f"for (int i = 0; i < {count}; ++i) {{",
        f"  const int m = {m};",
        f"  const int image = m / {w.out_height * w.out_width};",
        f"  const int top = m / {w.out_width} % {w.out_height} * {w.stride[0]} - {w.padding[0]};",
        f"  const int left = m % {w.out_width} * {w.stride[1]} - {w.padding[1]};",
        f"  const {kind} line = ({kind})image * {w.height} + top;",
        f"  {r}_pixel[i] = (line * {w.width} + left) * {channels} + {column};",
        *(_masks(o, w) if has_border(o) else []),
        "}",
    ]
    if any(o.leaves_columns(site) for site in o.sites):
        lines.append(f"const int {r}_columns = {channels} - {r}_column;")
    return lines


def _masks(o: Operand, w: Window) -> list[str]:
    target = f"{o.role}_inside[i]"
    kh, kw = o.source.shape[1:3]
    return [
        f"  {target} = 0;",
        *_inside(target, "top", kh, w.dilation[0], w.height, 0),
        *_inside(target, "left", kw, w.dilation[1], w.width, kh),
        f"  if (m >= {o.source.extent('m')}) {target} = 0;",
    ]


def _inside(target: str, first: str, count: int, dilation: int, size: int, shift: int) -> list[str]:
    """Set a bit for every filter row or column whose pixels lie inside."""
    bit = plus("f", str(shift))
    return [
        UNROLL,
        f"  for (int f = 0; f < {count}; ++f)",
        f"    {target} |= ((unsigned)({first} + f * {dilation}) < {size}u ? 1u : 0u) << ({bit});",
    ]


def window_source(o: Operand, site: Site) -> Source:
    """Where a copy reads: the pixel moved by the filter position and the channel."""
    w = _window(o)
    _, kh, kw, k = site.copy.src.starts
    channels = o.source.shape[-1]
    offset = kh * (w.dilation[0] * w.width * channels) + kw * (w.dilation[1] * channels) + k
    keeps, lines, keep = columns_kept(o, site, k)
    lines.append(f"const int offset = {expression(offset)};")
    inside = ""
    if has_border(o):
        column = plus(expression(kw), str(o.source.shape[1]))
        lines.append(f"const unsigned window = 1u << ({expression(kh)}) | 1u << ({column});")
        inside = f"({o.role}_inside[i] & window) == window"
    address = f"(const char*){o.role} + (long long)({o.role}_pixel[i] + offset) * {o.size}"
    return Source(tuple(lines), keeps, address, keep, inside)


def has_border(o: Operand) -> bool:
    """True when some position of the filter leaves the image, or rows past the last are copied."""
    w = _window(o)
    kh, kw = o.source.shape[1:3]
    bottom = (w.out_height - 1) * w.stride[0] - w.padding[0] + (kh - 1) * w.dilation[0]
    right = (w.out_width - 1) * w.stride[1] - w.padding[1] + (kw - 1) * w.dilation[1]
    outside = max(w.padding) > 0 or bottom >= w.height or right >= w.width
    return outside or any(o.leaves_rows(site) for site in o.sites)


def is_large(o: Operand) -> bool:
    """True when an index into the image may need 64 bits."""
    w = _window(o)
    images = o.source.shape[0] // max(1, w.out_height * w.out_width) + 2
    return images * o.source.strides[0] >= 2**31


def _window(o: Operand) -> Window:
    assert o.source.window is not None, f"{o.role} is no image"
    return o.source.window
