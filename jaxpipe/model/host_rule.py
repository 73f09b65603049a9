"""The host executor's schedule by rule: what was best when schedules were measured by hand.

In: a problem, the host. Out: one HostSchedule. The reasons stand at each choice; sizes come from
the host's caches and threads, so that the rule holds on 2 cores and on 64. It must not predict.
"""

from __future__ import annotations

from typing import Literal

from jaxpipe.dtypes import DTYPES
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import HostDevice

STREAM_ROWS = {16: 16, 8: 6, 4: 6}  # by vector lanes: rows that the streaming kernels take
SWEEP_ROWS = 4  # up to so many rows a stream runs along whole strips: the longer, the better
WIDEST_STRIP = 4096
STRIPS_A_THREAD = 3  # work items a thread should find, so that the last one costs little
CONV_BLOCK_K = 1024
# Panels of the widest strip of filters; row tiles that a strip must serve before it is halved.
WIDE_PANELS, STRIP_TILES = 8, 6
FLOAT_K, FLOAT_BLOCK_K = 2048, 512  # float32: longer panels and rows crowd each other out of L2
# Rows of a register tile, where the kernels have as many. 12 of AVX-512's 14: the two that are left
# lose more to L1 conflicts than they save.
ROWS = 12
WAY_BYTES = 4096  # of L1 on x86, which is indexed within a page
FEW_ROWS = 256
ALIASING_BYTES = 1024  # lhs rows a multiple of this apart share few L1 sets


def rule(problem: Problem, host: HostDevice) -> HostSchedule:
    """The schedule of `problem` on `host`; legal for every problem."""
    if isinstance(problem, Conv2d) and not problem.is_pointwise:
        return _convolution(problem, host)
    if isinstance(problem, Matmul) and _streams(problem, host):
        return _stream(problem, host)
    return _packed(problem, host)


def tile_rows(host: HostDevice) -> int:
    """Rows of the register tile where nothing asks for a low one."""
    return min(host.kernels.tile_rows, ROWS)


def _low_rows(host: HostDevice) -> int:
    """Rows whose lines have a way each in one L1 set, beside a panel's: 7 in 32 KB. Where there are
    as many ways as ROWS (48 KB) no tile has to be low."""
    ways = host.l1_bytes // WAY_BYTES
    return tile_rows(host) if ways >= ROWS else min(tile_rows(host), max(1, ways - 1))


def _streams(problem: Matmul, host: HostDevice) -> bool:
    """Few rows: packing rhs would cost more than it saves."""
    if problem.rhs.transposed or problem.dtype == "int8":
        return False
    return problem.m <= STREAM_ROWS[host.kernels.lanes]


def _stream(problem: Matmul, host: HostDevice) -> HostSchedule:
    """One long strip a thread for sweeps; a few strips a thread where sums stay in registers."""
    items = host.threads * (1 if problem.m <= SWEEP_ROWS else 2)
    strip = _round_up(-(-problem.n * max(1, problem.batch_size) // items), 4 * host.kernels.lanes)
    return HostSchedule(path="stream", strip=min(strip, WIDEST_STRIP), prefetch_rows=32)


def _packed(problem: Problem, host: HostDevice) -> HostSchedule:
    """Strips that each item packs; shared panels where threads outnumber strips."""
    panel = host.kernels.panel_cols
    is_low, low = _takes_low_tiles(problem), _low_rows(host)
    rows = low if is_low else tile_rows(host)
    wanted = STRIPS_A_THREAD * host.threads
    is_wide = is_low or _is_tall(problem) or problem.batch_size >= wanted
    widths = [4 * panel] if is_wide else []
    widths += [2 * panel, panel]
    strips = [problem.batch_size * -(-problem.n // width) for width in widths]
    copies = rows > low and _aliases(problem)
    if max(strips) >= wanted or problem.m <= 2 * rows:
        fits = (w for w, count in zip(widths, strips, strict=True) if count >= wanted)
        strip, block_k = next(fits, panel), _block_k(problem)
        # Low tiles in passes were faster panel by panel, tall ones row by row (both measured).
        by_row = strip >= 4 * panel and (not block_k or rows >= ROWS)
        return HostSchedule(
            rows=rows, strip=strip, block_k=block_k, order="row" if by_row else "panel",
            copy_lhs=copies,
        )  # fmt: skip
    blocks = -(-wanted // max(strips))
    block_m = max(2 * rows, _round_up(-(-problem.m // blocks), rows))
    return HostSchedule(rows=rows, strip=panel, block_m=block_m, pack="shared", copy_lhs=copies)


def _takes_low_tiles(problem: Problem) -> bool:
    """True where low tiles (_low_rows) beat tall ones in float32: the rows of lhs share few L1
    sets, results are many lines for short sums (attention), or many row tiles share a panel and
    store their sums as they are (an epilogue's call costs more than the lines)."""
    if not isinstance(problem, Matmul) or problem.dtype != "float32":
        return False
    is_bare = problem.epilogue.is_identity
    return (_is_tall(problem) and is_bare) or problem.batch_size > 1 or _aliases(problem)


def _is_tall(problem: Problem) -> bool:
    """Many rows of float32, which share each panel."""
    return problem.dtype == "float32" and problem.m > FEW_ROWS


def packed_rule(problem: Problem, host: HostDevice) -> HostSchedule:
    """The schedule of `problem` when rhs comes packed: nothing is shared, so items may be small.

    An item's rows fill at most half of L2, beside one panel; strips are as few panels as give every
    thread enough items.
    """
    rows, panel = tile_rows(host), host.kernels.panel_cols
    widens = not host.kernels.multiplies(problem.dtype)
    size = 4 if widens else DTYPES[problem.dtype].size_bytes
    fits = max(2 * rows, host.l2_bytes // 2 // (size * max(1, problem.k)) // rows * rows)
    m = problem.m * problem.batch_size
    block_m = 0 if m <= fits else _round_up(-(-m // -(-m // fits)), rows)
    panels = -(-problem.n // panel) * -(-m // (block_m or max(1, m)))
    each = max(1, min(8, panels // (STRIPS_A_THREAD * host.threads)))
    pack: Literal["item", "shared"] = "item" if widens and not block_m else "shared"
    return HostSchedule(
        rows=rows, strip=each * panel, block_m=block_m, pack=pack, copy_lhs=_aliases(problem)
    )


def _block_k(problem: Problem) -> int:
    """FLOAT_BLOCK_K of long float32 products; 0, one pass, of others (16 bits: not measured)."""
    is_long = problem.dtype == "float32" and problem.k > FLOAT_K
    return FLOAT_BLOCK_K if is_long else 0


def _convolution(problem: Conv2d, host: HostDevice) -> HostSchedule:
    """Filters are packed once; an item's gathered rows of one k block fill at most half of L2, and
    are as many as its strip is worth reading for. Every thread gets as many items of equal size."""
    rows, panel = tile_rows(host), host.kernels.panel_cols
    passes = max(1, -(-problem.k // CONV_BLOCK_K))
    block_k = _round_up(-(-problem.k // passes), 4) if passes > 1 else 0
    wanted, n = STRIPS_A_THREAD * host.threads, max(1, problem.n)
    strip = min(_round_up(n, panel), WIDE_PANELS * panel)
    while strip > 2 * panel and _share(problem, strip, wanted) < STRIP_TILES * rows:
        strip = _round_up(strip // 2, panel)
    fits = host.l2_bytes // 2 // (4 * max(1, block_k or problem.k))
    blocks = -(-problem.m // max(1, min(fits, _share(problem, strip, wanted))))
    if -(-n // strip) % host.threads:
        blocks = _round_up(blocks, host.threads)
    block_m = max(2 * rows, -(-problem.m // max(1, blocks)))
    return HostSchedule(rows=rows, strip=strip, block_m=block_m, block_k=block_k, pack="shared")


def _share(problem: Conv2d, strip: int, items: int) -> int:
    """Rows of an item when `items` of this strip are wanted."""
    return -(-problem.m // -(-items // -(-max(1, problem.n) // strip)))


def _aliases(problem: Problem) -> bool:
    """True when the rows of a register tile fall into few sets of L1 and lhs is read in place."""
    if not isinstance(problem, Matmul) or problem.lhs.transposed:
        return False
    row_bytes = problem.lhs_ld * DTYPES[problem.dtype].size_bytes
    return row_bytes % ALIASING_BYTES == 0 and row_bytes >= 4 * ALIASING_BYTES


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
