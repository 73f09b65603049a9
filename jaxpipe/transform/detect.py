"""Which buffers may be pipelined: ALCOP's three rules, each verdict with its reason.

In: a tiled nest, the stages asked of each buffer, the target. Out: one Verdict a buffer, as data.
Nothing is changed here; `pipeline` obeys the verdicts and `explain` prints them.
Source: ALCOP (MLSys 2023), section 2; research notes part 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxpipe.ir.nodes import Buffer, Copy, For, Func, Stmt
from jaxpipe.ir.printer import region_text
from jaxpipe.ir.visit import Body, buffers, children, reads, walk, writes
from jaxpipe.target import Arch


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule applied to one buffer."""

    rule: str
    holds: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What pipelining a buffer comes to: stages asked and granted, and every rule's result.

    loop is the sequential loop that it would be pipelined over, "" without one.
    """

    buffer: str
    scope: str
    loop: str
    requested: int
    granted: int
    rules: tuple[RuleResult, ...]

    @property
    def is_pipelined(self) -> bool:
        """True when the buffer gets more than one stage."""
        return self.granted > 1

    def __str__(self) -> str:
        head = f"{self.buffer} ({self.scope}): {self.granted} of {self.requested} stages"
        lines = [f"  {'ok' if r.holds else 'NO'}  {r.rule}: {r.reason}" for r in self.rules]
        return "\n".join([head, *lines])


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a buffer is filled and used: the loops around, innermost last, and the statements."""

    buffer: Buffer
    loops: tuple[For, ...]
    fills: tuple[Stmt, ...]
    uses: tuple[int, ...]  # positions of the users in the innermost loop

    @property
    def loop(self) -> For | None:
        return self.loops[-1] if self.loops else None


def verdicts(func: Func, requests: Mapping[str, int], arch: Arch) -> tuple[Verdict, ...]:
    """The verdict on every buffer of `requests` (name -> stages asked), in that order.

    Rules: 1 filled by an asynchronous pure copy; 2 filled inside a sequential load-and-use loop;
    3 on targets with scope-wide synchronisation, all pipelined buffers of the scope synchronise
    at the same positions. Register buffers need no synchronisation, so rule 3 passes them.
    """
    sites = {name: _site(func, name) for name in requests}
    first_two = {n: (_asynchronous(s, arch), _sequential(s)) for n, s in sites.items()}
    wanting = {
        n: s
        for n, s in sites.items()
        if s.buffer.scope == "shared" and requests[n] > 1 and all(r.holds for r in first_two[n])
    }
    found = []
    for name, site in sites.items():
        third = _same_position(name, wanting, requests, arch)
        rules = (*first_two[name], third)
        granted, limit = _granted(site, requests[name], rules)
        loop = site.loop.var if site.loop is not None and rules[1].holds else ""
        found.append(
            Verdict(name, site.buffer.scope, loop, requests[name], granted, (*rules, *limit))
        )
    return tuple(found)


# ---------------------------------------------------------------------- the rules
def _asynchronous(site: _Site, arch: Arch) -> RuleResult:
    rule = "1 asynchronous copy"
    for fill in site.fills:
        match fill:
            case Copy(steps=steps) if steps:
                words = ", ".join(s.op for s in steps)
                return RuleResult(rule, False, f"the copy computes ({words}): not a pure copy")
            case Copy(dst=dst, src=src) if site.buffer.scope == "register":
                text = f"{region_text(dst)} <- {region_text(src)}: loads do not block"
                return RuleResult(rule, True, text)
            case Copy(mode="async") if arch.has_cp_async:
                continue
            case Copy(mode="staged"):
                reason = "rows too little aligned for cp.async: through registers, one chunk ahead"
                return RuleResult(rule, True, reason)
            case Copy(mode=mode):
                return RuleResult(rule, False, f"the copy is {mode} on {arch.name}: it blocks")
            case _:
                kind = type(fill).__name__.lower()
                return RuleResult(rule, False, f"filled by {kind}: computed, not copied")
    return RuleResult(rule, True, "a pure copy with cp.async")


def _sequential(site: _Site) -> RuleResult:
    rule = "2 load-and-use loop"
    loop = site.loop
    if loop is None or loop.kind in ("grid", "warp"):
        where = f"parallel loop {loop.var}" if loop is not None else "no loop"
        return RuleResult(rule, False, f"filled in {where}: once, with nothing to overlap")
    if loop.kind != "serial":
        return RuleResult(rule, False, f"innermost loop {loop.var} is {loop.kind}, not sequential")
    if not site.uses:
        return RuleResult(rule, False, f"filled but not used inside loop {loop.var}")
    return RuleResult(rule, True, f"filled and used in each of {_trips(loop)} steps of {loop.var}")


def _same_position(
    name: str, wanting: Mapping[str, _Site], requests: Mapping[str, int], arch: Arch
) -> RuleResult:
    rule = "3 same synchronisation"
    if name not in wanting:
        return RuleResult(rule, True, "no barrier needed")
    if arch.has_per_object_barriers:
        return RuleResult(rule, True, f"{arch.name} has a barrier for each buffer")
    mine = _position(wanting[name], requests[name])
    for other, site in wanting.items():
        theirs = _position(site, requests[other])
        if theirs != mine:
            reason = f"{mine} against {theirs} of {other}; {arch.name} synchronises a whole scope"
            return RuleResult(rule, False, reason)
    others = ", ".join(n for n in wanting if n != name) or "no other buffer"
    return RuleResult(rule, True, f"{mine}, as {others}")


def _position(site: _Site, stages: int) -> str:
    """Where the scope would have to synchronise for this buffer, as text."""
    assert site.loop is not None
    return f"{stages} stages over {site.loop.var}, used at {site.uses[0]}..{site.uses[-1]}"


def _granted(
    site: _Site, requested: int, rules: tuple[RuleResult, ...]
) -> tuple[int, tuple[RuleResult, ...]]:
    """Stages that the buffer gets, and the reason when the loop is too short for those asked."""
    if requested <= 1 or not all(r.holds for r in rules):
        return 1, ()
    assert site.loop is not None
    trips = _trips(site.loop)
    stages = max(1, min(requested, trips))
    if site.buffer.scope == "register" and trips % stages:
        stages = 1
    if stages == requested:
        return stages, ()
    reason = f"loop {site.loop.var} has {trips} steps: {stages} of {requested} stages"
    return stages, (RuleResult("extent", stages > 1, reason),)


def _trips(loop: For) -> int:
    return loop.stop - loop.start


# ---------------------------------------------------------------------- where things are
def _site(func: Func, name: str) -> _Site:
    fills = [(loops, s) for loops, s in _with_loops(func.body, ()) if _touches(writes(s), name)]
    loops = fills[0][0] if fills else ()
    body = loops[-1].body if loops else func.body
    known = buffers(func)
    uses = tuple(_users(body, name, known[name].scope, known))
    return _Site(known[name], loops, tuple(s for _, s in fills), uses)


def _with_loops(body: Body, loops: tuple[For, ...]) -> Iterator[tuple[tuple[For, ...], Stmt]]:
    for statement in body:
        yield loops, statement
        inner = (*loops, statement) if isinstance(statement, For) else loops
        yield from _with_loops(children(statement), inner)


def _touches(regions: tuple[object, ...], name: str) -> bool:
    return any(getattr(r, "buffer", None) == name for r in regions)


def _users(body: Body, name: str, scope: str, known: Mapping[str, Buffer]) -> Iterator[int]:
    """Positions in `body` that read the buffer, counted over what reads its scope: a loop is one
    position, leaves that follow each other are one."""
    position, after_leaf = -1, False
    for statement in body:
        inside = [r.buffer for s in (statement, *walk(children(statement))) for r in reads(s)]
        if not any(known[b].scope == scope for b in inside):
            continue
        is_leaf = not children(statement)
        position += not (is_leaf and after_leaf)
        after_leaf = is_leaf
        if name in inside:
            yield position
