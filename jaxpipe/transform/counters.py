"""Turn remainders and quotients of a loop variable into counters that the loop carries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxpipe.ir.affine import Affine, Atom, Quotient, Remainder, Var, const, var
from jaxpipe.ir.nodes import Counter, For, Func, Region, Stmt
from jaxpipe.ir.visit import Body, map_regions, regions, rewrite, walk


@dataclass(frozen=True, slots=True)
class _Digit:
    """floor((variable + offset) / divisor) % modulus; modulus 0 means unbounded."""

    offset: int
    divisor: int
    modulus: int


def counters(func: Func) -> Func:
    """Strength reduction of stage indices and of mixed-radix digits:

        for ko in serial(9)                  for ko in serial(9), ko_2_3 from 2 mod 3
          copy s{(ko + 2) % 3} <- ...   ->     copy s{ko_2_3} <- ...

    A digit of a linearised counter steps when the digit below it wraps (`Counter.carry`).
    """

    def rule(statement: Stmt) -> Body:
        match statement:
            case For(kind="serial") as loop:
                return (_with_counters(loop),)
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def _with_counters(loop: For) -> For:
    digits = sorted(
        {d for s in walk(loop.body) for r in regions(s) for d in _digits_of_region(r, loop.var)},
        key=lambda d: (d.offset, d.divisor, d.modulus),
    )
    known = {d: name for d in digits if (name := _name(d, loop.var)) and _can_count(d, digits)}
    if not known:
        return loop
    carried = tuple(_counter(d, loop, known) for d in known)

    def rule(statement: Stmt) -> Body:
        return (map_regions(statement, lambda r: _counted_region(r, loop.var, known)),)

    return replace(loop, body=rewrite(loop.body, rule), counters=carried)


def _digits_of_region(region: Region, name: str) -> list[_Digit]:
    exprs = (*region.starts, region.stage)
    return [d for e in exprs for atom, _ in e.terms if (d := _digit(atom, name)) is not None]


def _digit(atom: Atom, name: str) -> _Digit | None:
    match atom:
        case Remainder(Affine(((Var(v), 1),), offset), modulus) if v == name:
            return _Digit(offset, 1, modulus)
        case Quotient(Affine(((Var(v), 1),), offset), divisor) if v == name:
            return _Digit(offset, divisor, 0)
        case Remainder(
            Affine(((Quotient(Affine(((Var(v), 1),), offset), divisor), 1),), 0), modulus
        ) if v == name:
            return _Digit(offset, divisor, modulus)
        case _:
            return None


def _can_count(digit: _Digit, digits: list[_Digit]) -> bool:
    return digit.divisor == 1 or _below(digit, digits) is not None


def _below(digit: _Digit, digits: list[_Digit]) -> _Digit | None:
    """The digit whose wrap steps this one: same offset, divisor * modulus is this divisor."""
    for other in digits:
        if (
            other.offset == digit.offset
            and other.modulus
            and other.divisor * other.modulus == digit.divisor
            and _can_count(other, [d for d in digits if d.divisor < other.divisor])
        ):
            return other
    return None


def _name(digit: _Digit, variable: str) -> str:
    parts = (
        [variable, str(digit.offset), str(digit.divisor)]
        if digit.divisor > 1
        else [variable, str(digit.offset)]
    )
    return "_".join([*parts, str(digit.modulus)] if digit.modulus else [*parts, "up"])


def _counter(digit: _Digit, loop: For, known: dict[_Digit, str]) -> Counter:
    start = (loop.start + digit.offset) // digit.divisor
    below = _below(digit, list(known))
    return Counter(
        name=known[digit],
        start=start % digit.modulus if digit.modulus else start,
        modulus=digit.modulus,
        carry=known[below] if below is not None else "",
    )


def _counted_region(region: Region, name: str, known: dict[_Digit, str]) -> Region:
    starts = tuple(_counted(s, name, known) for s in region.starts)
    return replace(region, starts=starts, stage=_counted(region.stage, name, known))


def _counted(expr: Affine, name: str, known: dict[_Digit, str]) -> Affine:
    result = const(expr.constant)
    for atom, factor in expr.terms:
        digit = _digit(atom, name)
        counter = known.get(digit) if digit is not None else None
        result += (Affine(((atom, 1),)) if counter is None else var(counter)) * factor
    return result
