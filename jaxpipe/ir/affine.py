"""Integer index expressions in one normal form: a sum of scaled atoms and a constant.

An atom is a loop variable, a floor quotient or a remainder of another expression by a positive
constant. Equal sums compare and print alike whatever order built them. It must not know loops or
buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Range = tuple[int, int]  # smallest and largest value, both included
Ranges = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class Var:
    """The value of a loop variable."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """floor(value / divisor)."""

    value: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_grouped(self.value)} / {self.divisor}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """value - divisor * floor(value / divisor), in [0, divisor)."""

    value: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_grouped(self.value)} % {self.divisor}"


Atom = Var | Quotient | Remainder


@dataclass(frozen=True, slots=True)
class Affine:
    """sum(coefficient * atom) + constant; terms are sorted by the atom's text, none is zero."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        if not self.terms or not other.terms:
            return Affine(self.terms or other.terms, self.constant + other.constant)
        sums = dict(self.terms)
        for atom, factor in other.terms:
            sums[atom] = sums.get(atom, 0) + factor
        return _normal(sums, self.constant + other.constant)

    def __radd__(self, other: int) -> Affine:
        return self + other

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return ZERO
        return Affine(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def __rmul__(self, factor: int) -> Affine:
        return self * factor

    def __floordiv__(self, divisor: int) -> Affine:
        """Floor quotient; the part that `divisor` divides leaves the atom."""
        assert divisor > 0, f"quotient by {divisor}"
        whole = {a: c // divisor for a, c in self.terms if c % divisor == 0}
        rest = tuple((a, c) for a, c in self.terms if c % divisor)
        if not rest:
            return _normal(whole, self.constant // divisor)
        carried, constant = divmod(self.constant, divisor)
        return _normal(whole, carried) + _quotient(Affine(rest, constant), divisor)

    def __mod__(self, divisor: int) -> Affine:
        """Remainder in [0, divisor); the part that `divisor` divides is dropped."""
        assert divisor > 0, f"remainder by {divisor}"
        rest = {a: c % divisor for a, c in self.terms if c % divisor}
        constant = self.constant % divisor
        if not rest:
            return Affine((), constant)
        return _remainder(_normal(rest, constant), divisor)

    @property
    def is_constant(self) -> bool:
        """True when no variable occurs."""
        return not self.terms

    def __str__(self) -> str:
        parts = [_term(atom, factor) for atom, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


def _grouped(value: Affine) -> str:
    text = str(value)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _term(atom: Atom, factor: int) -> str:
    text = str(atom)
    if factor == 1:
        return text
    return f"{text if text.isidentifier() else f'({text})'} * {factor}"


def _normal(sums: dict[Atom, int], constant: int) -> Affine:
    terms = [(a, c) for a, c in sums.items() if c]
    if len(terms) > 1:
        terms.sort(key=lambda term: str(term[0]))
    return Affine(tuple(terms), constant)


def _quotient(value: Affine, divisor: int) -> Affine:
    """One atom; floor(floor(x / a) / b) = floor(x / (a * b)); (x % n) / d swaps if d divides n."""
    match value:
        case Affine(((Quotient(inner, first), 1),), constant):
            return _quotient(inner + constant * first, first * divisor)
        case Affine(((Remainder(inner, modulus), 1),), 0) if modulus % divisor == 0:
            return (inner // divisor) % (modulus // divisor)
        case _ if divisor == 1:
            return value
        case _:
            return Affine(((Quotient(value, divisor), 1),))


def _remainder(value: Affine, divisor: int) -> Affine:
    """One atom; (x % n) % d is x % d if d | n."""
    match value:
        case Affine(((Remainder(inner, modulus), 1),), constant) if modulus % divisor == 0:
            return (inner + constant) % divisor
        case _:
            return Affine(((Remainder(value, divisor), 1),))


ZERO = Affine()


def const(value: int) -> Affine:
    """The expression of one number."""
    return Affine((), value)


def var(name: str) -> Affine:
    """The expression of one loop variable."""
    return Affine(((Var(name), 1),))


def substitute(expr: Affine, values: Mapping[str, Affine]) -> Affine:
    """`expr` with variables replaced."""
    if not expr.terms:
        return expr
    result = const(expr.constant)
    for atom, factor in expr.terms:
        match atom:
            case Var(name):
                new = values.get(name)
                result += (Affine(((atom, 1),)) if new is None else new) * factor
            case Quotient(value, divisor):
                result += (substitute(value, values) // divisor) * factor
            case Remainder(value, divisor):
                result += (substitute(value, values) % divisor) * factor
    return result


def bounds(expr: Affine, ranges: Ranges) -> Range:
    """Smallest and largest value while every variable stays in its range (KeyError without one)."""
    low = high = expr.constant
    for atom, factor in expr.terms:
        ends = [factor * end for end in _atom_bounds(atom, ranges)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _atom_bounds(atom: Atom, ranges: Ranges) -> Range:
    match atom:
        case Var(name):
            return ranges[name]
        case Quotient(value, divisor):
            low, high = bounds(value, ranges)
            return low // divisor, high // divisor
        case Remainder(value, divisor):
            low, high = bounds(value, ranges)
            if low // divisor == high // divisor:
                return low % divisor, high % divisor
            return 0, divisor - 1


def simplify(expr: Affine, ranges: Ranges) -> Affine:
    """`expr` without quotients and remainders that the ranges make trivial."""
    result = const(expr.constant)
    for atom, factor in expr.terms:
        match atom:
            case Var(name):
                low, high = ranges.get(name, (0, 1))
                result += (const(low) if low == high else Affine(((atom, 1),))) * factor
            case Quotient(value, divisor):
                inner = simplify(value, ranges)
                result += _simple_quotient(inner, divisor, ranges) * factor
            case Remainder(value, divisor):
                inner = simplify(value, ranges)
                quotient = _simple_quotient(inner, divisor, ranges)
                exact = quotient.is_constant
                result += (inner - quotient * divisor if exact else inner % divisor) * factor
    return result


def _simple_quotient(value: Affine, divisor: int, ranges: Ranges) -> Affine:
    if all(name in ranges for name in free_variables(value)):
        low, high = bounds(value, ranges)
        if low // divisor == high // divisor:
            return const(low // divisor)
    return value // divisor


def free_variables(expr: Affine) -> Iterator[str]:
    """Names of the variables in `expr`, in order of occurrence, possibly repeated."""
    for atom, _ in expr.terms:
        match atom:
            case Var(name):
                yield name
            case Quotient(value, _) | Remainder(value, _):
                yield from free_variables(value)


def evaluate(expr: Affine, values: Mapping[str, int]) -> int:
    """The number that `expr` is when every variable has its value."""
    result = expr.constant
    for atom, factor in expr.terms:
        match atom:
            case Var(name):
                result += factor * values[name]
            case Quotient(value, divisor):
                result += factor * (evaluate(value, values) // divisor)
            case Remainder(value, divisor):
                result += factor * (evaluate(value, values) % divisor)
    return result
