"""Matrix products written in Triton and Gluon: sources only, Triton's compiler decides the PTX.

Every kernel computes c = a @ b for stored matrices of any leading dimension (`lda` elements between
the rows in memory; a is stored as k x m when `a_transposed`, b as n x k when `b_transposed`).
`a_scaled` doubles a on its way, which takes that operand through registers.
"""

# ruff: noqa: SIM108
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import ampere, hopper


@triton.jit
def product_by_pointers(
    a, b, c, m, n, k, lda, ldb, ldc,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    a_transposed: tl.constexpr, b_transposed: tl.constexpr, a_scaled: tl.constexpr,
    accumulator: tl.constexpr, specialized: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Tiles of pointers with masks: cp.async on sm_80 and sm_90."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    cols = tl.program_id(1) * block_n + tl.arange(0, block_n)
    steps = tl.arange(0, block_k)
    if a_transposed:
        from_a = a + rows[:, None] + steps[None, :] * lda
    else:
        from_a = a + rows[:, None] * lda + steps[None, :]
    if b_transposed:
        from_b = b + steps[:, None] + cols[None, :] * ldb
    else:
        from_b = b + steps[:, None] * ldb + cols[None, :]
    acc = tl.zeros((block_m, block_n), accumulator)
    for start in tl.range(0, k, block_k, warp_specialize=specialized):
        x = tl.load(from_a, mask=(rows[:, None] < m) & (steps[None, :] < k - start), other=0.0)
        y = tl.load(from_b, mask=(cols[None, :] < n) & (steps[:, None] < k - start), other=0.0)
        if a_scaled:
            x = (x.to(tl.float32) * 2.0).to(x.dtype)
        acc = tl.dot(x, y, acc, input_precision=precision, out_dtype=accumulator)
        if a_transposed:
            from_a += block_k * lda
        else:
            from_a += block_k
        if b_transposed:
            from_b += block_k
        else:
            from_b += block_k * ldb
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c + rows[:, None] * ldc + cols[None, :], acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def _product_of_descriptors(
    a, b, c, k,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    a_transposed: tl.constexpr, b_transposed: tl.constexpr, a_scaled: tl.constexpr,
    accumulator: tl.constexpr, specialized: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    row, col = tl.program_id(0) * block_m, tl.program_id(1) * block_n
    acc = tl.zeros((block_m, block_n), accumulator)
    for start in tl.range(0, k, block_k, warp_specialize=specialized):
        if a_transposed:
            x = a.load([start, row]).T
        else:
            x = a.load([row, start])
        if b_transposed:
            y = b.load([col, start]).T
        else:
            y = b.load([start, col])
        if a_scaled:
            x = (x.to(tl.float32) * 2.0).to(x.dtype)
        acc = tl.dot(x, y, acc, input_precision=precision, out_dtype=accumulator)
    c.store([row, col], acc.to(c.dtype))


@triton.jit
def product_by_descriptors(
    a, b, c, m, n, k, lda, ldb, ldc,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    a_transposed: tl.constexpr, b_transposed: tl.constexpr, a_scaled: tl.constexpr,
    accumulator: tl.constexpr, specialized: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Tensor maps made by the host: TMA loads and stores."""
    _product_of_descriptors(
        a, b, c, k, block_m, block_n, block_k, a_transposed, b_transposed, a_scaled,
        accumulator, specialized, precision,
    )  # fmt: skip


@triton.jit
def product_by_own_descriptors(
    a, b, c, m, n, k, lda, ldb, ldc,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
    a_transposed: tl.constexpr, b_transposed: tl.constexpr, a_scaled: tl.constexpr,
    accumulator: tl.constexpr, specialized: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Tensor maps made by the kernel (tensormap.replace, in global scratch memory)."""
    if a_transposed:
        map_a = tl.make_tensor_descriptor(a, [k, m], [lda, 1], [block_k, block_m])
    else:
        map_a = tl.make_tensor_descriptor(a, [m, k], [lda, 1], [block_m, block_k])
    if b_transposed:
        map_b = tl.make_tensor_descriptor(b, [n, k], [ldb, 1], [block_n, block_k])
    else:
        map_b = tl.make_tensor_descriptor(b, [k, n], [ldb, 1], [block_k, block_n])
    map_c = tl.make_tensor_descriptor(c, [m, n], [ldc, 1], [block_m, block_n])
    _product_of_descriptors(
        map_a, map_b, map_c, k, block_m, block_n, block_k, a_transposed, b_transposed, a_scaled,
        accumulator, specialized, precision,
    )  # fmt: skip


@gluon.jit
def product_with_layouts(
    a, b, c, m, n, k, lda, ldb, ldc,
    block_m: gl.constexpr, block_n: gl.constexpr, block_k: gl.constexpr,
    a_transposed: gl.constexpr, b_transposed: gl.constexpr,
    swizzle_a: gl.constexpr, swizzle_b: gl.constexpr, bits: gl.constexpr,
    mma_n: gl.constexpr, warps: gl.constexpr,
):  # fmt: skip
    """wgmma on shared tiles of a given swizzle and majorness, filled by generic stores."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps, 1], [1, 0])
    layout_a: gl.constexpr = gl.NVMMASharedLayout(swizzle_a, bits, 2, a_transposed)
    layout_b: gl.constexpr = gl.NVMMASharedLayout(swizzle_b, bits, 2, b_transposed)
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[warps, 1], instr_shape=[16, mma_n, 256 // bits]
    )
    across: gl.constexpr = gl.SliceLayout(0, blocked)
    down: gl.constexpr = gl.SliceLayout(1, blocked)
    rows = gl.program_id(0) * block_m + gl.arange(0, block_m, layout=down)
    cols = gl.program_id(1) * block_n + gl.arange(0, block_n, layout=across)
    steps_a = gl.arange(0, block_k, layout=across)
    steps_b = gl.arange(0, block_k, layout=down)
    tile_a = gl.allocate_shared_memory(a.dtype.element_ty, [block_m, block_k], layout_a)
    tile_b = gl.allocate_shared_memory(b.dtype.element_ty, [block_k, block_n], layout_b)
    acc = gl.zeros((block_m, block_n), gl.float32, layout=mma)
    for start in range(0, k, block_k):
        at_a, at_b = (start + steps_a)[None, :], (start + steps_b)[:, None]
        if a_transposed:
            from_a = a + rows[:, None] + at_a * lda
        else:
            from_a = a + rows[:, None] * lda + at_a
        if b_transposed:
            from_b = b + at_b + cols[None, :] * ldb
        else:
            from_b = b + at_b * ldb + cols[None, :]
        tile_a.store(gl.load(from_a, mask=(rows[:, None] < m) & (at_a < k), other=0.0))
        tile_b.store(gl.load(from_b, mask=(cols[None, :] < n) & (at_b < k), other=0.0))
        hopper.fence_async_shared()
        acc = hopper.warpgroup_mma(tile_a, tile_b, acc)
    out = gl.convert_layout(acc, blocked)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    gl.store(c + rows[:, None] * ldc + cols[None, :], out, mask=inside)


@gluon.jit
def _copy_step(
    a, b, tiles_a, tiles_b, filled, step, m, n, k, lda, ldb, rows, cols, down, across,
    block_k: gl.constexpr, stages: gl.constexpr,
):  # fmt: skip
    at_a, at_b = (step * block_k + across)[None, :], (step * block_k + down)[:, None]
    slot = step % stages
    ampere.async_copy.async_load(
        tiles_a.index(slot), a + rows[:, None] * lda + at_a, mask=(rows[:, None] < m) & (at_a < k)
    )
    ampere.async_copy.async_load(
        tiles_b.index(slot), b + at_b * ldb + cols[None, :], mask=(cols[None, :] < n) & (at_b < k)
    )
    ampere.async_copy.mbarrier_arrive(filled.index(slot), increment_count=False)


@gluon.jit
def product_by_ring(
    a, b, c, m, n, k, lda, ldb, ldc,
    block_m: gl.constexpr, block_n: gl.constexpr, block_k: gl.constexpr,
    a_transposed: gl.constexpr, b_transposed: gl.constexpr,
    swizzle_a: gl.constexpr, swizzle_b: gl.constexpr, bits: gl.constexpr,
    mma_n: gl.constexpr, warps: gl.constexpr, stages: gl.constexpr,
):  # fmt: skip
    """A ring of mbarriers at which finished cp.async arrive; neither operand is transposed."""
    gl.static_assert(not (a_transposed or b_transposed))
    wide: gl.constexpr = gl.BlockedLayout([1, 128 // bits], [8, 4], [warps, 1], [1, 0])
    blocked: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps, 1], [1, 0])
    layout_a: gl.constexpr = gl.NVMMASharedLayout(swizzle_a, bits, 2, False)
    layout_b: gl.constexpr = gl.NVMMASharedLayout(swizzle_b, bits, 2, False)
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[warps, 1], instr_shape=[16, mma_n, 256 // bits]
    )
    row, col = gl.program_id(0) * block_m, gl.program_id(1) * block_n
    rows = row + gl.arange(0, block_m, layout=gl.SliceLayout(1, wide))
    cols = col + gl.arange(0, block_n, layout=gl.SliceLayout(0, wide))
    across = gl.arange(0, block_k, layout=gl.SliceLayout(0, wide))
    down = gl.arange(0, block_k, layout=gl.SliceLayout(1, wide))
    dtype: gl.constexpr = a.dtype.element_ty
    tiles_a = gl.allocate_shared_memory(dtype, [stages, block_m, block_k], layout_a)
    tiles_b = gl.allocate_shared_memory(dtype, [stages, block_k, block_n], layout_b)
    filled = ampere.mbarrier.allocate_mbarrier(batch=stages)
    for first in gl.static_range(stages):
        ampere.mbarrier.init(filled.index(first), 32 * warps)
    gl.barrier()
    for step in gl.static_range(stages - 1):
        _copy_step(a, b, tiles_a, tiles_b, filled, step, m, n, k, lda, ldb, rows, cols, down,
                   across, block_k, stages)  # fmt: skip
    acc = gl.zeros((block_m, block_n), gl.float32, layout=mma)
    trips = gl.cdiv(k, block_k)
    for trip in range(trips):
        gl.barrier()  # everybody has read the slot that is filled next
        _copy_step(a, b, tiles_a, tiles_b, filled, trip + stages - 1, m, n, k, lda, ldb, rows,
                   cols, down, across, block_k, stages)  # fmt: skip
        slot = trip % stages
        ampere.mbarrier.wait(filled.index(slot), (trip // stages) & 1)
        hopper.fence_async_shared()
        gl.barrier()
        acc = hopper.warpgroup_mma(tiles_a.index(slot), tiles_b.index(slot), acc)
    for rest in gl.static_range(stages - 1):
        last = trips + rest
        ampere.mbarrier.wait(filled.index(last % stages), (last // stages) & 1)
    out = gl.convert_layout(acc, blocked)
    out_rows = row + gl.arange(0, block_m, layout=gl.SliceLayout(1, blocked))
    out_cols = col + gl.arange(0, block_n, layout=gl.SliceLayout(0, blocked))
    inside = (out_rows[:, None] < m) & (out_cols[None, :] < n)
    gl.store(c + out_rows[:, None] * ldc + out_cols[None, :], out, mask=inside)
