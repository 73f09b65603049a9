"""Every choice about how a problem is computed, as data: GpuSchedule and HostSchedule.

In: numbers and words. Out: derived sizes, text and JSON forms. What is legal stands in
legality.py. It must not know the IR, the emitters or JAX.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_type_hints

from jaxpipe.dtypes import DTYPES
from jaxpipe.errors import ScheduleError
from jaxpipe.problem import Conv2d, Problem

Family = Literal["ampere", "hopper"]


class _Textual:
    """Text and JSON forms shared by the schedules: `k=v,...` and plain dicts."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """A plain dict of every field."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The schedule with these fields; ScheduleError names unknown ones."""
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        if unknown := sorted(set(values) - known):
            raise ScheduleError(
                f"{cls.__name__} has no field {', '.join(unknown)}: "
                f"it has {', '.join(sorted(known))}"
            )
        return cls(**values)

    @classmethod
    def parse(cls, text: str, base: Self | None = None) -> Self:
        """The schedule of `block_m=128,smem_stages=4`; other fields from `base` or default."""
        values: dict[str, Any] = base.to_json() if base is not None else {}
        types = get_type_hints(cls)
        for part in filter(None, text.split(",")):
            name, sep, value = part.partition("=")
            if not sep or name not in types:
                raise ScheduleError(
                    f"{part!r} in schedule {text!r}: write field=value with a field of "
                    f"{', '.join(f.name for f in fields(cls))}"  # type: ignore[arg-type]
                )
            values[name] = _parse_value(name, value, types[name])
        return cls.from_json(values)

    def __str__(self) -> str:
        default = type(self)()
        parts = [
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in fields(self)  # type: ignore[arg-type]
            if getattr(self, f.name) != getattr(default, f.name) or f.name in self._always()
        ]
        return ",".join(parts)

    @classmethod
    def _always(cls) -> frozenset[str]:
        return frozenset()


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _parse_value(name: str, text: str, kind: object) -> object:
    if kind is bool:
        words = {"1": True, "0": False, "true": True, "false": False}
        if text.lower() not in words:
            raise ScheduleError(f"{name}={text!r}: write 0 or 1")
        return words[text.lower()]
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ScheduleError(f"{name}={text!r}: write a whole number") from None
    return text


@dataclass(frozen=True, slots=True)
class GpuSchedule(_Textual):
    """How a kernel computes a problem.

    block_*: threadblock tile in elements. warps_m, warps_n: how warps split it ("ampere"; a warp
    tile is block/warps). smem_stages: copies of each shared-memory tile, 1 is unpipelined.
    reg_stages: copies of each register fragment. swizzle: XOR the 16-byte chunks of a shared row.
    raster_group: how many tile rows a group of consecutive blocks walks before the next column.
    split_k: blocks that share one result tile along k (partials float32, fixed order).
    "hopper" only: consumers (warpgroups), ping_pong, cluster_m x cluster_n blocks with multicast,
    swap_operands (computes the transpose, for few rows), tma (False: cp.async producer),
    persistent_blocks (of the grid, each walks over tiles; the number of SMs of the device).
    """

    family: Family = "ampere"
    block_m: int = 128
    block_n: int = 128
    block_k: int = 32
    warps_m: int = 2
    warps_n: int = 2
    smem_stages: int = 4
    reg_stages: int = 2
    swizzle: bool = True
    raster_group: int = 8
    split_k: int = 1
    min_blocks_per_sm: int = 1
    consumers: int = 2
    ping_pong: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    swap_operands: bool = False
    tma: bool = True
    persistent_blocks: int = 132

    @classmethod
    def _always(cls) -> frozenset[str]:
        return frozenset({"block_m", "block_n", "block_k", "smem_stages", "reg_stages"})

    @property
    def threads(self) -> int:
        """Threads of one block."""
        if self.family == "hopper":
            return 128 * (self.consumers + 1)
        return 32 * self.warps_m * self.warps_n

    @property
    def warp_m(self) -> int:
        """Rows of one warp's tile ("ampere")."""
        return self.block_m // self.warps_m

    @property
    def warp_n(self) -> int:
        """Columns of one warp's tile ("ampere")."""
        return self.block_n // self.warps_n

    def tiles_m(self, problem: Problem) -> int:
        """Threadblock tiles along m."""
        return -(-problem.m // self.block_m)

    def tiles_n(self, problem: Problem) -> int:
        """Threadblock tiles along n."""
        return -(-problem.n // self.block_n)

    def k_steps(self, problem: Problem) -> int:
        """Main-loop iterations of one block; a convolution's k tiles end with the channels."""
        if isinstance(problem, Conv2d):
            channels = -(-problem.in_channels // self.block_k)
            steps = problem.kernel[0] * problem.kernel[1] * channels
        else:
            steps = -(-problem.k // self.block_k)
        return -(-steps // self.split_k)

    def blocks(self, problem: Problem) -> int:
        """Result tiles times splits times batch: blocks of a non-persistent launch."""
        tiles = self.tiles_m(problem) * self.tiles_n(problem)
        return tiles * problem.batch_size * self.split_k

    def stage_bytes(self, problem: Problem) -> int:
        """Shared bytes of one pipeline stage: one lhs tile and one rhs tile."""
        size = DTYPES[problem.dtype].size_bytes
        return (self.block_m + self.block_n) * self.block_k * size

    def stages(self, problem: Problem) -> int:
        """Stages that the pipeline gets ("ampere"): those asked, at most one a k step."""
        return max(1, min(self.smem_stages, self.k_steps(problem)))

    def shared_bytes(self, problem: Problem) -> int:
        """Dynamic shared bytes of a block ("ampere"): the ring, or the staging of results in the
        same memory where that is larger; without k only the latter."""
        ring = self.stages(problem) * self.stage_bytes(problem) if self.k_steps(problem) else 0
        pitch_words = staging_layout(self.warp_n, self.store_vector(problem))[2]
        return max(ring, 4 * 16 * pitch_words * self.warps_m * self.warps_n)

    def store_vector(self, problem: Problem) -> int:
        """Neighbouring results that one access writes: as the alignment of a row allows."""
        name = problem.accumulator if self.split_k > 1 else problem.out_dtype
        return row_vector(problem.n, DTYPES[name].size_bytes)


def row_vector(columns: int, size_bytes: int) -> int:
    """Elements of a dense row that one access of at most 16 bytes moves, wherever it begins."""
    return max(1, math.gcd(16, columns * size_bytes) // size_bytes)


def staging_layout(warp_n: int, vector: int) -> tuple[int, int, int]:
    """How rows of float32 or int32 results lie in shared memory on their way out.

    Chunks of 16 bytes are dealt to `groups` groups, so that lanes that each read `vector`
    neighbours find theirs side by side. Returns groups, words of a group, words of a row: padded
    so that fragments (8 rows x 4 pairs) are written without bank conflicts.
    """
    groups = max(1, vector // 4)
    words = warp_n // groups
    group_words = words + (4 - words) % 8 if groups > 1 else words
    row_words = groups * group_words
    return groups, group_words, row_words + (8 - row_words) % 32


@dataclass(frozen=True, slots=True)
class HostSchedule(_Textual):
    """How csrc/host computes a problem on a CPU. No field changes a bit of the result.

    path: "packed" packs rhs into panels as wide as two vectors; "stream" reads it once in place
    (few rows; where that cannot serve, packed does). rows: height of the register tile, 0 the
    tallest. strip: columns of one work item, 0 one panel. block_m, block_k: rows of a work item
    and k of one pass, 0 all. order: "panel" keeps a panel and walks the rows, "row" keeps a row
    tile and walks the strip's panels. pack: where panels are made, by each "item" or once for
    all, "shared". stages: 1 computes only, 2 prefetches the next tile's lines meanwhile.
    prefetch_rows: how many rhs rows ahead "stream" asks for. copy_lhs: copy lhs once into rows
    that suit the caches. threads: at most so many, 0 all of XLA's pool. isa: the instruction
    set, "auto" the best.
    """

    path: Literal["packed", "stream"] = "packed"
    rows: int = 0
    strip: int = 64
    block_m: int = 0
    block_k: int = 0
    order: Literal["panel", "row"] = "panel"
    pack: Literal["item", "shared"] = "item"
    stages: int = 2
    prefetch_rows: int = 8
    copy_lhs: bool = False
    threads: int = 0
    isa: Literal["auto", "portable", "avx2", "avx512", "avx512_bf16"] = "auto"


Schedule = GpuSchedule | HostSchedule
