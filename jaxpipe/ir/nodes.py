"""The loop IR: a tile-level loop nest over buffers, with explicit copies and synchronisation.

A `Func` is a nest for one kernel launch. Leaves move or combine whole tiles (`Region`s); axes have
names ("m", "n", "k", "kh", ...), and leaves match dimensions by name, so a transposed operand is
only a buffer with its axes in the other order. Warp loops run in lockstep: a leaf that touches a
register buffer is done by every warp, which has its own; any other leaf is done once, by all warps
together. A staging buffer is registers too, but one tile spread over all threads of the block.
ir/interpret.py defines the meaning of every node.
It must not know schedules, targets or CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxpipe.ir.affine import ZERO, Affine, const, var
from jaxpipe.kernel import BufferRole

Scope = Literal["global", "shared", "register", "staging"]
LoopKind = Literal["grid", "warp", "serial", "unrolled"]
CopyMode = Literal["sync", "async", "staged"]


# ---------------------------------------------------------------------- buffers
@dataclass(frozen=True, slots=True)
class Window:
    """How an NHWC image appears as a matrix: row m = (image, out row, out column), column
    (kh, kw, k = channel); positions outside the image read as zero."""

    height: int
    width: int
    out_height: int
    out_width: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]  # top, left


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array. `axes` names its dimensions, outermost first.

    Global buffers have strides in elements (the last is 1) and the role of a kernel parameter;
    with a `window` they are images seen as matrices and the strides are the image's (n, h, w, c).
    Shared and register buffers have `stages` copies; `swizzle` permutes the 16-byte chunks of a
    shared row. `align_bytes` (global) divides the address of every row. `rows` names the parameter
    that the extent along m is, of which the shape has the largest value; "" for none.
    """

    name: str
    scope: Scope
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    stages: int = 1
    swizzle: bool = False
    strides: tuple[int, ...] = ()
    role: BufferRole | None = None
    align_bytes: int = 16
    window: Window | None = None
    rows: str = ""

    def size(self, axis: str) -> int:
        """Extent along a named axis, the largest where the call brings it."""
        return self.shape[self.axes.index(axis)]

    def extent(self, axis: str) -> Affine:
        """The extent along a named axis as it is in the call."""
        return var(self.rows) if axis == "m" and self.rows else const(self.size(axis))


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: start and extent per dimension, in one of its stages.

    What lies outside a global buffer reads as zero and is not written.
    """

    buffer: str
    starts: tuple[Affine, ...]
    extents: tuple[int, ...]
    stage: Affine = ZERO


# ---------------------------------------------------------------------- expressions of leaves
@dataclass(frozen=True, slots=True)
class Less:
    """left < right."""

    left: Affine
    right: Affine

    def __str__(self) -> str:
        return f"{self.left} < {self.right}"


@dataclass(frozen=True, slots=True)
class Step:
    """One element-wise step: op of jaxpipe.ir.ops.OPS, with a scalar or a second operand."""

    op: str
    operand: Region | None = None
    scalar: float = 0.0


# ---------------------------------------------------------------------- statements
@dataclass(frozen=True, slots=True)
class Counter:
    """A variable that a serial loop carries: starts at `start`, steps by one at the end of each
    iteration (of those only in which counter `carry`, if named, wraps to 0), wraps at `modulus`
    (never, if that is 0). Counters are listed after those that they carry from."""

    name: str
    start: int
    modulus: int
    carry: str = ""


@dataclass(frozen=True, slots=True)
class For:
    """body for var = start .. stop - 1. grid: blocks; warp: warps of a block, in lockstep."""

    var: str
    start: int
    stop: int
    kind: LoopKind
    body: tuple[Stmt, ...]
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """body where every condition holds."""

    conditions: tuple[Less, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """A shared or register buffer that lives from here to the end of the enclosing body."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Fill:
    """dst = value everywhere."""

    dst: Region
    value: float


@dataclass(frozen=True, slots=True)
class Copy:
    """dst = src, axis by axis; `steps` make it a computation (then it is no pure copy).

    sync: done when the statement is. async: done after a Wait that covers its Commit. staged:
    through registers; `pipeline` splits it into a load and a put around a staging buffer.
    """

    dst: Region
    src: Region
    mode: CopyMode = "sync"
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Mma:
    """acc += sum over the axes that acc has not of lhs * rhs."""

    acc: Region
    lhs: Region
    rhs: Region


@dataclass(frozen=True, slots=True)
class Elementwise:
    """dst = step(src), the operand broadcast along the axes that it has not."""

    dst: Region
    src: Region
    step: Step


@dataclass(frozen=True, slots=True)
class Store:
    """dst = round(steps(src)) into a global buffer, once; a step "save" writes what it has."""

    dst: Region
    src: Region
    steps: tuple[Step, ...] = ()


# ---------------------------------------------------------------------- synchronisation
@dataclass(frozen=True, slots=True)
class Acquire:
    """The producer of `pipe` waits until the slot of its next chunk was released."""

    pipe: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The copies since the last Commit are the next chunk of `pipe`."""

    pipe: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The consumers of `pipe` wait until the next chunk, in order of Commit, is complete."""

    pipe: str


@dataclass(frozen=True, slots=True)
class Release:
    """The consumers of `pipe` will not read its oldest chunk again."""

    pipe: str


@dataclass(frozen=True, slots=True)
class CommitGroup:
    """cp.async.commit_group: an empty group counts."""


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """cp.async.wait_group: at most `pending` of this thread's newest groups are incomplete."""

    pending: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block arrive before any goes on; earlier writes are visible after."""


@dataclass(frozen=True, slots=True)
class WaitMma:
    """The products of this nest are asynchronous; at most `pending` of the newest are incomplete
    after this (wgmma.wait_group). Until then they read their operands and own their accumulator."""

    pending: int


@dataclass(frozen=True, slots=True)
class Role:
    """What one kind of warps does. Roles that follow each other run side by side, ordered only by
    Acquire, Commit, Wait and Release."""

    name: Literal["producer", "consumer"]
    body: tuple[Stmt, ...]


Stmt = (
    For | If | Alloc | Fill | Copy | Mma | Elementwise | Store
    | Acquire | Commit | Wait | Release | CommitGroup | WaitGroup | Barrier | WaitMma | Role
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Func:
    """One kernel launch: global buffers and a nest."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
