"""The way back from a problem's key to the problem, for records that were read from a file.

In: the text of `Problem.key`. Out: an equal problem. It must not know schedules or devices.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, cast

from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.errors import JaxpipeError, RecordError
from jaxpipe.problem import Conv2d, Layout, Matmul, Precision, Problem


@functools.lru_cache(maxsize=65536)
def problem_from_key(key: str) -> Problem:
    """The problem whose `key` this is; RecordError when the text is no key."""
    kind, *words = key.split(" ")
    parsers: dict[str, Callable[[list[str]], Problem]]
    parsers = {"matmul": _matmul, "conv2d": _conv2d}
    try:
        problem = parsers[kind](words)
    except (KeyError, IndexError, ValueError, TypeError, JaxpipeError) as error:
        raise RecordError(f"not a problem key ({error!r}): {key[:200]!r}") from error
    if problem.key != key:
        raise RecordError(f"not a problem key: {key[:200]!r} reads as {problem.key!r}")
    return problem


def _matmul(words: list[str]) -> Matmul:
    *batch, m, n, k = _ints(words.pop(0), "x")
    layout, dtypes = words.pop(0), words.pop(0)
    common = _common(dtypes, words)
    stored = {"lhs": Layout(layout[0] == "t"), "rhs": Layout(layout[1] == "t")}
    while words and words[0][:3] in stored:
        name, text = words[0][:3], words.pop(0)[3:]
        ld, _, strides = text.partition(":")
        stored[name] = Layout(stored[name].transposed, int(ld), _ints(strides, ","))
    epilogue = _epilogue(words)
    return Matmul(
        m, n, k, tuple(batch), lhs=stored["lhs"], rhs=stored["rhs"], epilogue=epilogue, **common
    )


def _conv2d(words: list[str]) -> Conv2d:
    image, _, out = words.pop(0).partition("->")
    kernel, stride, padding, dilation = (words.pop(0)[1:] for _ in range(4))
    batch, height, width, channels = _ints(image, "x")
    top, bottom, left, right = _ints(padding, ",")
    common = _common(words.pop(0), words)
    return Conv2d(
        batch,
        height,
        width,
        channels,
        int(out),
        kernel=_pair(kernel),
        stride=_pair(stride),
        padding=((top, bottom), (left, right)),
        dilation=_pair(dilation),
        epilogue=_epilogue(words),
        **common,
    )


def _common(dtypes: str, words: list[str]) -> dict[str, Any]:
    """dtype, out_dtype, for float32 the precision that follows them, and the last word's sizes."""
    dtype, _, out = dtypes.partition("->")
    values: dict[str, Any] = {"dtype": dtype, "out_dtype": out}
    if dtype == "float32":
        values["precision"] = cast(Precision, words.pop(0))
    if words and words[-1].startswith("dynamic:"):
        values["dynamic"] = tuple(words.pop()[8:].split(","))
    return values


def epilogue_fields(text: str) -> dict[str, Any]:
    """Fields of the epilogue in words joined by + (`Epilogue.describe`): EPILOGUE_WORDS and
    `alpha=NUMBER`. Raises KeyError for another word."""
    values: dict[str, Any] = {}
    for part in filter(None, re.split(r"(?<!e)\+", text)):  # 1e+06 is one number
        is_alpha = part.startswith("alpha=")
        values |= {"alpha": float(part[6:])} if is_alpha else EPILOGUE_WORDS[part]
    return values


def _epilogue(words: list[str]) -> Epilogue:
    """The epilogue in words, and the bias dtype that may follow it."""
    values = epilogue_fields(words.pop(0)) if words else {}
    if words and words[0].startswith("bias:"):
        values["bias_dtype"] = words.pop(0)[5:]
    if words:
        raise ValueError(f"left over: {' '.join(words)}")
    return Epilogue(**values)


EPILOGUE_WORDS: dict[str, dict[str, Any]] = {
    "bias": {"bias": "column"},
    "row_bias": {"bias": "row"},
    "residual": {"residual": True},
    "residual_first": {"residual": True, "residual_first": True},
    "preactivation": {"save_preactivation": True},
    **{a: {"activation": a} for a in ACTIVATIONS[1:]},
    **{f"derivative_{a}": {"residual": True, "derivative": a} for a in ACTIVATIONS[1:]},
}


def _ints(text: str, separator: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(separator) if word)


def _pair(text: str) -> tuple[int, int]:
    first, second = _ints(text, "x")
    return first, second
