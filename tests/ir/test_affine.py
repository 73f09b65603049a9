"""Index expressions: arithmetic, bounds and simplification agree with plain integers."""

import random

import pytest

from jaxpipe.ir.affine import Affine, bounds, const, evaluate, simplify, substitute, var


def draw(rng: random.Random, depth: int, env: dict[str, int]) -> tuple[Affine, int]:
    """An expression and its value, computed beside it."""
    if depth == 0 or rng.random() < 0.2:
        name = rng.choice("ab")
        value = rng.randint(-9, 9)
        return (var(name), env[name]) if rng.random() < 0.8 else (const(value), value)
    expr, value = draw(rng, depth - 1, env)
    n = rng.randint(1, 6)
    match rng.choice("+*/%"):
        case "+":
            other, more = draw(rng, depth - 1, env)
            return expr + other, value + more
        case "*":
            return expr * n, value * n
        case "/":
            return expr // n, value // n
        case _:
            return expr % n, value % n


@pytest.mark.parametrize("seed", range(20))
def test_expressions_agree_with_integers(seed: int) -> None:
    rng = random.Random(seed)
    env = {"a": rng.randint(-20, 20), "b": rng.randint(0, 9)}
    ranges = {"a": (env["a"] - 1, env["a"] + 2), "b": (env["b"], env["b"])}
    drawn = [draw(rng, 5, env) for _ in range(200)]
    assert all(evaluate(e, env) == value for e, value in drawn)
    assert all(evaluate(simplify(e, ranges), env) == value for e, value in drawn)
    assert all(bounds(e, ranges)[0] <= value <= bounds(e, ranges)[1] for e, value in drawn)


def test_equal_sums_compare_equal_whatever_order_built_them() -> None:
    a, b = var("a"), var("b")
    assert a + b + 3 == 3 + b + a
    assert a - a == const(0)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((var("ko") + 2) % 3, "(ko + 2) % 3"),
        ((var("step") // 4) // 3, "step / 12"),
        ((var("step") % 12) // 4, "(step / 4) % 3"),
        ((var("step") % 12) % 4, "step % 4"),
        (var("m0") * 128 - 5, "m0 * 128 - 5"),
    ],
)
def test_expressions_have_one_normal_form(expr: Affine, text: str) -> None:
    assert str(expr) == text


def test_substitution_reaches_into_quotients() -> None:
    expr = (var("ki") + 1) // 2 + var("ko")
    assert substitute(expr, {"ki": const(1)}) == var("ko") + 1
