"""Turns a compiled kernel into a custom call: the one place where kernels meet XLA.

In: a CompiledKernel and its operands by role. Out: the results, traceable, for the executor
"cuda" (the cubin travels in the call) or "interpret" (the encoded PTX does). The handlers are in
csrc/ffi. It must not know how kernels are made or chosen.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxpipe import dynamic
from jaxpipe.errors import UnsupportedError
from jaxpipe.kernel import BufferRole, CompiledKernel
from jaxpipe.problem import Conv2d, Problem
from jaxpipe.ptx import embed
from jaxpipe.runtime import recipe, targets
from jaxpipe.runtime.reference import result_shape

Executor = Literal["cuda", "interpret"]
TARGETS: dict[Executor, str] = {
    "cuda": "jaxpipe_cuda_launch",
    "interpret": "jaxpipe_interpret_launch",
}
OPERAND_ORDER: tuple[BufferRole, ...] = ("lhs", "rhs", "bias", "residual")
WORKSPACE_ALIGN_BYTES = 256


def call(
    compiled: CompiledKernel,
    operands: Mapping[BufferRole, jax.Array],
    *,
    executor: Executor,
    shape: tuple[Any, ...] | None = None,
) -> tuple[jax.Array, ...]:
    """Launch `compiled` on `operands`: `(y,)`, or `(y, preactivation)` when the epilogue saves it.

    operands holds lhs and rhs, and bias and residual exactly when the problem's epilogue has them;
    each is dense and row-major in its stored order (a transposed lhs is [batch..., k, m]). Results
    have the problem's shape: [batch..., m, n], or NHWC; `shape` where that is dynamic. A problem
    without elements launches nothing and gives an empty result. Raises UnsupportedError for
    operands that do not fit.
    """
    problem = compiled.kernel.problem
    assert shape is not None or not problem.dynamic, f"{problem} without a result shape"
    shape, dtype = shape or result_shape(problem), jnp.dtype(problem.out_dtype)
    outputs = 1 + problem.epilogue.save_preactivation
    if problem.is_empty:
        return tuple(jnp.zeros(shape, dtype) for _ in range(outputs))
    values = _ordered(compiled, operands)
    results = results_of(compiled, shape)
    attributes = attributes_of(compiled, values, executor, shape)
    if not targets.is_registered(TARGETS[executor]):
        raise UnsupportedError(
            f"executor {executor!r} needs FFI handler {TARGETS[executor]}, this build of the "
            f"extension has {', '.join(targets.register())}"
        )
    arrays = jax.ffi.ffi_call(TARGETS[executor], list(results.values()))(
        *values.values(), **attributes
    )
    return tuple(arrays[:outputs])


def _ordered(
    compiled: CompiledKernel, operands: Mapping[BufferRole, jax.Array]
) -> dict[BufferRole, jax.Array]:
    """`operands` in the order of the call; exactly those that the problem has."""
    epilogue = compiled.kernel.problem.epilogue
    wanted = {"lhs", "rhs"}
    wanted |= {"bias"} if epilogue.bias != "none" else set()
    wanted |= {"residual"} if epilogue.residual else set()
    if set(operands) != wanted:
        raise UnsupportedError(
            f"{compiled.kernel.name} takes {', '.join(sorted(wanted))}, "
            f"got {', '.join(sorted(operands))}"
        )
    return {role: operands[role] for role in OPERAND_ORDER if role in operands}


def attributes_of(
    compiled: CompiledKernel,
    operands: Mapping[BufferRole, jax.Array],
    executor: Executor,
    shape: tuple[Any, ...] | None = None,
) -> dict[str, object]:
    """What travels in the call: recipe, names, key, and the executor's form of the kernel."""
    results = results_of(compiled, shape)
    buffers = [_buffers(compiled, values, shape) for values in (operands, results)]
    attributes = _attributes(compiled, *buffers, executor)
    return attributes | embed.attributes(compiled) if executor == "interpret" else attributes


def results_of(
    compiled: CompiledKernel, shape: tuple[Any, ...] | None = None
) -> dict[BufferRole, jax.ShapeDtypeStruct]:
    """Results of the custom call in order: what the kernel writes, its workspace last."""
    problem = compiled.kernel.problem
    out = jax.ShapeDtypeStruct(shape or result_shape(problem), jnp.dtype(problem.out_dtype))
    results: dict[BufferRole, jax.ShapeDtypeStruct] = {"out": out}
    if problem.epilogue.save_preactivation:
        results["preactivation"] = out
    if workspace := compiled.kernel.workspace_bytes:
        size = math.ceil(workspace / WORKSPACE_ALIGN_BYTES) * WORKSPACE_ALIGN_BYTES
        results["workspace"] = jax.ShapeDtypeStruct((size,), jnp.uint8)
    return results


def _buffers(
    compiled: CompiledKernel,
    values: Mapping[BufferRole, jax.Array | jax.ShapeDtypeStruct],
    shape: tuple[Any, ...] | None,
) -> tuple[recipe.Buffer, ...]:
    problem = compiled.kernel.problem
    known = {} if shape is None else _symbolic(problem, shape)
    found = []
    for role, value in values.items():
        sizes = dynamic.sizes_of(problem, role) if known else ()
        ones = math.prod(value.shape) // math.prod(known[name] for name in sizes)
        if not isinstance(ones, int):
            raise UnsupportedError(
                f"{role} has the symbolic shape {value.shape}, the kernel takes a multiple of "
                f"{' * '.join(sizes) or 'nothing symbolic'}: use implementation='xla'"
            )
        found.append(recipe.Buffer(role, ones * value.dtype.itemsize, sizes))
    return tuple(found)


def _symbolic(problem: Problem, shape: tuple[Any, ...]) -> dict[str, Any]:
    """The dynamic sizes of a problem as they are in its result's shape."""
    first = "batch" if isinstance(problem, Conv2d) else "batch0"
    return {first: shape[0], "m": shape[-2]} if problem.dynamic else {}


@functools.lru_cache(maxsize=512)
def _attributes(
    compiled: CompiledKernel,
    operands: tuple[recipe.Buffer, ...],
    results: tuple[recipe.Buffer, ...],
    executor: Executor,
) -> dict[str, object]:
    encoded = recipe.encode(compiled.kernel, operands, results)
    attributes: dict[str, object] = {
        "recipe": np.array(encoded.words, np.int64),
        "names": encoded.names,
        "key": compiled.key,
    }
    if executor == "cuda":
        attributes["cubin"] = zlib.compress(compiled.cubin, 9)
    return attributes
