"""Runs a Problem on the CPU by csrc/host: problem and schedule -> one FFI call in the traced graph.

In: a Matmul or Conv2d, a HostSchedule, JAX arrays whose memory is as the problem's layouts say.
Out: traced results. It must not know primitives, derivatives or batching rules: ops/ calls it
from a lowering. `default_schedule` is the rule that needs no model and no tuned record.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import jax
import numpy as np

from jaxpipe import settings
from jaxpipe.epilogue import ACTIVATIONS, Epilogue
from jaxpipe.errors import SettingError, UnsupportedError
from jaxpipe.legality import require_host
from jaxpipe.model import host_rule
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.runtime import targets
from jaxpipe.schedule import HostSchedule
from jaxpipe.target import host_device

CONFIG_VERSION = 3
FLOATS = ("float32", "bfloat16", "float16")
_BIAS_KINDS = ("none", "column", "row")
_ISAS = ("auto", "portable", "avx2", "avx512", "avx512_bf16")
_PATHS = ("packed", "stream")
_ORDERS = ("panel", "row")
_PACKS = ("item", "shared")
DYNAMIC = -1  # a size or dense stride that the handler reads off its buffers' dimensions


def unsupported_reason(problem: Problem) -> str:
    """Why csrc/host cannot compute `problem`, as a sentence; "" when it can."""
    if problem.dtype == "int8" and isinstance(problem, Matmul):
        if problem.out_dtype != "int32" or not problem.epilogue.is_identity:
            return (
                f"the host executor multiplies int8 into int32 without an epilogue, "
                f"got {problem.out_dtype} with {problem.epilogue.describe() or 'no epilogue'}"
            )
        return ""
    kinds = {"operands": problem.dtype, "result": problem.out_dtype}
    if problem.epilogue.bias != "none":
        kinds["bias"] = problem.bias_dtype
    for what, dtype in kinds.items():
        if dtype not in FLOATS:
            return f"the host executor takes {', '.join(FLOATS)}, the {what} is {dtype}"
    return ""


def call(
    problem: Problem,
    schedule: HostSchedule,
    lhs: jax.Array,
    rhs: jax.Array,
    bias: jax.Array | None = None,
    residual: jax.Array | None = None,
    is_packed: bool = False,
    shape: tuple[Any, ...] | None = None,
) -> tuple[jax.Array, ...]:
    """The result of `problem`, and the pre-activation where its epilogue saves it.

    lhs, rhs: arrays of any shape whose memory, in row-major order, is what problem.lhs and
    problem.rhs describe (a Conv2d: NHWC image, HWIO filter, dense). bias: n or m elements;
    residual: as the result. A rhs of float32 in a product of 16 bits is rounded while it is packed.
    is_packed: rhs is packed for this CPU's kernels, [panels, steps, columns, terms]
    (ops/packing.py). Results have shape problem.batch + (m, n), or NHWC; of a dynamic problem it is
    given, and a lhs with a dynamic k ends with its stored rows and columns. Traceable on platform
    cpu; raises UnsupportedError, ScheduleError.
    """
    if reason := unsupported_reason(problem):
        raise UnsupportedError(f"{problem}: {reason}; use implementation='xla'")
    require_host(schedule)
    targets.register()
    assert shape is not None or not problem.dynamic, f"{problem} without a result shape"
    out = jax.ShapeDtypeStruct(shape or _out_shape(problem), np.dtype(problem.out_dtype))
    outs = [out, out] if problem.epilogue.save_preactivation else [out]
    operands = [lhs, rhs, *(x for x in (bias, residual) if x is not None)]
    packing = (rhs.shape[2], rhs.shape[3]) if is_packed else (0, 0)
    config = np.array(encode(problem, schedule, thread_cap(), packing), np.int64)
    results = jax.ffi.ffi_call("jaxpipe_host_gemm", outs)(*operands, config=config)
    return tuple(results)


def thread_cap() -> int:
    """JAXPIPE_HOST_THREADS, or 0 for no cap; SettingError when it is no positive number."""
    text = settings.get("JAXPIPE_HOST_THREADS")
    if text is None:
        return 0
    if not str(text).isdigit() or int(str(text)) < 1:
        raise SettingError(
            f"JAXPIPE_HOST_THREADS={text!r}: it takes a whole number of at least 1; "
            "unset it to use all of XLA's pool"
        )
    return int(str(text))


def capped_threads(schedule: HostSchedule, cap: int) -> int:
    """The schedule's threads under `cap`; 0 means all of the pool, in both."""
    return min((t for t in (schedule.threads, cap) if t), default=0)


def encode(
    problem: Problem, schedule: HostSchedule, cap: int, packing: tuple[int, int] = (0, 0)
) -> list[int]:
    """The numbers that csrc/ffi/host_decode.cc reads, in its order.

    `cap` bounds the threads; packing: columns of a panel of a packed rhs, rows of a word.
    """
    epilogue = problem.epilogue
    return [
        CONFIG_VERSION,
        *_sizes(problem),
        *_operands(problem),
        struct.unpack("<i", struct.pack("<f", epilogue.alpha))[0],
        _BIAS_KINDS.index(epilogue.bias),
        ACTIVATIONS.index(epilogue.activation),
        _residual_kind(epilogue),
        int(epilogue.save_preactivation),
        _ISAS.index(schedule.isa),
        _PATHS.index(schedule.path),
        *(schedule.rows, schedule.strip, schedule.block_m, schedule.block_k),
        _ORDERS.index(schedule.order),
        _PACKS.index(schedule.pack),
        *(schedule.stages, schedule.prefetch_rows, int(schedule.copy_lhs)),
        capped_threads(schedule, cap),
        *_image(problem),
        *packing,
    ]


def _residual_kind(epilogue: Epilogue) -> int:
    if epilogue.residual_first:
        return 1 + len(ACTIVATIONS)
    return int(epilogue.residual) + ACTIVATIONS.index(epilogue.derivative)


def _out_shape(problem: Problem) -> tuple[int, ...]:
    if isinstance(problem, Conv2d):
        return (problem.batch, problem.out_height, problem.out_width, problem.n)
    return (*problem.batch, problem.m, problem.n)


def _sizes(problem: Problem) -> tuple[int, ...]:
    """m, n, k and the batch sizes; a convolution is one product over all pixels."""
    if isinstance(problem, Conv2d):
        return (DYNAMIC if problem.dynamic else problem.m, problem.n, problem.k, 1, 1)
    named = problem.sizes.items()
    m, n, k, *batch = (DYNAMIC if name in problem.dynamic else size for name, size in named)
    return (m, n, k, *(1, 1, *batch)[-2:])


def _operands(problem: Problem) -> tuple[int, ...]:
    """Both operands' strides."""
    if isinstance(problem, Conv2d):
        return (problem.k, 1, 0, 0, problem.n, 1, 0, 0)
    lhs, rhs = problem.lhs, problem.rhs
    if not problem.dynamic:
        lhs = Layout(lhs.transposed, problem.lhs_ld, problem.lhs_batch_strides)
        rhs = Layout(rhs.transposed, problem.rhs_ld, problem.rhs_batch_strides)
    return (*_strides(lhs, len(problem.batch)), *_strides(rhs, len(problem.batch)))


def _image(problem: Problem) -> tuple[int, ...]:
    """The convolution's fields, zeros for a product (a pointwise convolution is one, but where its
    pixels are counted in the call)."""
    if isinstance(problem, Matmul) or (problem.is_pointwise and not problem.dynamic):
        return (0,) * 15
    return (
        1,
        DYNAMIC if problem.dynamic else problem.batch,
        *(problem.height, problem.width, problem.in_channels),
        *(problem.out_height, problem.out_width),
        *problem.kernel,
        *problem.stride,
        *(problem.padding[0][0], problem.padding[1][0]),
        *problem.dilation,
    )


def _strides(layout: Layout, batch_rank: int) -> tuple[int, ...]:
    """(row, column, batch 0, batch 1) strides in elements; dense ones of a layout that does not
    name them are dynamic."""
    ld = layout.ld or DYNAMIC
    batch_strides = layout.batch_strides or (DYNAMIC,) * batch_rank
    return (*((1, ld) if layout.transposed else (ld, 1)), *(0, 0, *batch_strides)[-2:])


@functools.cache
def default_schedule(problem: Problem) -> HostSchedule:
    """The schedule by rule (model/host_rule.py), without tuned records."""
    return host_rule.rule(problem, host_device())
