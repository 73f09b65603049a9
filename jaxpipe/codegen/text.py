"""Small pieces of C text: index expressions, conditions, tables of constants, indentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxpipe.ir.affine import Affine, Atom, Quotient, Ranges, Remainder, Var, bounds
from jaxpipe.ir.nodes import Less

INT_LIMIT = 2**31 - 1
UNROLL = "#pragma unroll"


def indented(lines: Iterable[str], by: int = 2) -> list[str]:
    """Lines moved right; preprocessor lines and empty ones stay."""
    return [line if not line or line[0] == "#" else " " * by + line for line in lines]


def expression(expr: Affine, *, wide: bool = False) -> str:
    """`expr` as C; quotients and remainders must have non-negative values. wide: 64-bit."""
    suffix = "ll" if wide else ""
    parts = [_term(atom, factor, suffix) for atom, factor in expr.terms]
    if expr.constant or not parts:
        parts.append(f"{expr.constant}{suffix}")
    return " + ".join(parts).replace("+ -", "- ")


def _term(atom: Atom, factor: int, suffix: str) -> str:
    text = _atom(atom)
    if factor == 1:
        return f"(long long){text}" if suffix else text
    return f"{text} * {factor}{suffix}" if factor > 0 else f"{text} * ({factor}{suffix})"


def _atom(atom: Atom) -> str:
    match atom:
        case Var(name):
            return name
        case Quotient(value, divisor):
            return f"(({expression(value)}) / {divisor})"
        case Remainder(value, divisor):
            return f"(({expression(value)}) % {divisor})"


def is_wide(expr: Affine, ranges: Ranges) -> bool:
    """True when the value may leave 32 bits."""
    low, high = bounds(expr, ranges)
    return low < -INT_LIMIT or high > INT_LIMIT


def condition(conditions: Sequence[Less]) -> str:
    """A conjunction as C."""
    return " && ".join(f"{expression(c.left)} < {expression(c.right)}" for c in conditions)


def plus(text: str, expr: str) -> str:
    """`text + expr`, without a term that is zero."""
    return text if expr in ("0", "0ll", "0u") else f"{text} + {expr}"


def by_index(values: Sequence[int], name: str = "i") -> str | None:
    """A C expression in `name` for values[name], when they are linear; None otherwise."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if any(v != values[0] + step * i for i, v in enumerate(values)):
        return None
    if step == 0:
        return str(values[0])
    return plus(f"{name} * {step}", str(values[0]))


def table(name: str, values: Sequence[int]) -> str:
    """A constant array."""
    return f"constexpr int {name}[] = {{{', '.join(map(str, values))}}};"
