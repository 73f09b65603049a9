"""Merge perfectly nested sequential loops into one (the linearised counter of a convolution)."""

from __future__ import annotations

from dataclasses import replace

from jaxpipe.ir.affine import var
from jaxpipe.ir.nodes import For, Func, Stmt
from jaxpipe.ir.visit import Body, rewrite, substituted

STREAM = "step"


def linearise(func: Func) -> Func:
    """One counter for nested streaming loops, so that a pipeline runs on across all of them:

        for kh in serial(3)                   for step in serial(9 * KO)
          for kw in serial(3)           ->      body[kh := step / (3 * KO),
            for ko in serial(KO)                     kw := step / KO % 3,
              body                                   ko := step % KO]

    Source: ALCOP's artifact counts g = (kh * KW + kw) * KO + ko (research notes part 1.3).
    """

    def rule(statement: Stmt) -> Body:
        match statement:
            case For(kind="serial", body=(For(kind="serial") as inner,)) as outer:
                return (_merged(outer, inner),)
            case _:
                return (statement,)

    return replace(func, body=rewrite(func.body, rule))


def _merged(outer: For, inner: For) -> For:
    assert outer.start == inner.start == 0, "loops are merged before anything shifts them"
    stream, trips = var(STREAM), max(1, inner.stop)
    values = {outer.var: stream // trips, inner.var: stream % trips}
    return For(STREAM, 0, outer.stop * inner.stop, "serial", substituted(inner.body, values))
