"""Compiles JAX functions with XLA:GPU for a GPU that is not there.

Needs jax-cuda13-plugin and jax-cuda13-pjrt beside jax, and nothing else of CUDA. In: a function and
its arguments' shapes. Out: the optimised program. XLA cannot measure here, so its choices that come
from autotuning (tiles, split-K, cuBLAS or Triton) are its defaults.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Read by the plugin when JAX first looks for backends: there is no cuDNN or driver to check.
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")

TARGETS = pathlib.Path(__file__).parent / "targets"
# What makes XLA leave every product to cuBLAS, as with Triton switched off.
CUBLAS_ONLY = {"xla_gpu_enable_triton_gemm": False}


@dataclass(frozen=True)
class CommandBuffer:
    """One CUDA graph that XLA forms: the kinds of its commands, in order."""

    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A compiled program: HLO text, bytes of temporaries, CUDA graphs, thunks outside of them."""

    text: str
    lowered: str
    temp_bytes: int
    command_buffers: tuple[CommandBuffer, ...]
    loose: tuple[str, ...]


@functools.cache
def devices(target: str) -> tuple[Any, ...]:
    """Devices of the topology `target` ("h200", "a100"), for compiling only."""
    config = (TARGETS / f"{target}.txtpb").read_text()
    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", topology="1x1x1", target_config=config
    )
    return tuple(topology.devices)


def place(target: str, arguments: Any) -> Any:
    """`arguments` (arrays or shapes) as shapes on the first device of `target`."""
    sharding = NamedSharding(Mesh([devices(target)[0]], ("x",)), PartitionSpec())
    return jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), arguments
    )


def compile_for(
    target: str,
    function: Callable[..., Any],
    *arguments: Any,
    options: Mapping[str, Any] | None = None,
    **jit_options: Any,
) -> Program:
    """`function` compiled for `target` on arguments of these shapes."""
    lowered = jax.jit(function, **jit_options).lower(*place(target, arguments))
    with tempfile.TemporaryDirectory() as folder:
        compiled = lowered.compile({"xla_dump_to": folder, **(options or {})})
        buffers, loose = _thunks(pathlib.Path(folder))
    memory = compiled.memory_analysis()
    return Program(compiled.as_text(), lowered.as_text(), memory.temp_size_in_bytes, buffers, loose)


def _thunks(folder: pathlib.Path) -> tuple[tuple[CommandBuffer, ...], tuple[str, ...]]:
    """Command buffers, and kinds of thunks outside of them, from XLA's dump of its thunks."""
    path = next(
        path
        for name in ("thunk_sequence_after_thunk_passes", "thunk_sequence")
        for path in folder.glob(f"*.{name}.txt")
    )
    buffers: list[list[str]] = []
    loose: list[str] = []
    inside = -1  # indentation of the command buffer that lines belong to
    for found in re.finditer(r"^( *)\d+: (k\w+)", path.read_text(), re.MULTILINE):
        indent, kind = len(found[1]), found[2]
        if kind == "kCommandBuffer":
            buffers.append([])
            inside = indent
        elif 0 <= inside < indent:
            buffers[-1].append(kind)
        else:
            inside = -1
            loose.append(kind)
    return tuple(CommandBuffer(tuple(kinds)) for kinds in buffers), tuple(loose)
