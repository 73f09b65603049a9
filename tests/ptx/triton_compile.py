"""A TritonCase to PTX, by Triton's own compiler and without a GPU; kept by content.

A compiled case is kept in a directory of the system's temporary one, under a hash of Triton's
version, the sources and the case, so that a second run takes milliseconds.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tests.ptx.triton_cases import TritonCase

# As Triton spells them.
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "int8": "i8", "int32": "i32",
           "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}  # fmt: skip
_SIZES = ("m", "n", "k", "lda", "ldb", "ldc")
_HERE = pathlib.Path(__file__).parent
_SOURCES = ("triton_kernels.py", "triton_compile.py")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The box of a tensor map that the host makes: rows and columns, and the swizzle's width."""

    box: tuple[int, int]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a launch needs to know of a compiled kernel."""

    ptx: str
    entry: str
    shared_bytes: int
    scratch_bytes: int  # of global memory, a block
    scratch_alignment: int
    descriptors: tuple[Descriptor, ...]


def cache_directory() -> pathlib.Path:
    """Where compiled cases and Triton's own cache lie."""
    return pathlib.Path(tempfile.gettempdir()) / f"jaxpipe-triton-{os.getuid()}"


def version() -> str:
    """Triton's."""
    return importlib.metadata.version("triton")


def compile_case(case: TritonCase) -> Compiled:
    """The compiled case, from the cache when it is there."""
    path = cache_directory() / f"{_key(case)}.json"
    if path.exists():
        return _from_json(json.loads(path.read_text()))
    compiled = _compile(case)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(asdict(compiled)))
    written.replace(path)
    return compiled


def _key(case: TritonCase) -> str:
    return hashlib.sha256("\0".join((version(), _source_text(), repr(case))).encode()).hexdigest()


@functools.cache
def _source_text() -> str:
    return "".join((_HERE / name).read_text() for name in _SOURCES)


def _from_json(found: dict[str, Any]) -> Compiled:
    rows = tuple(Descriptor((d["box"][0], d["box"][1]), d["swizzle_bytes"])
                 for d in found.pop("descriptors"))  # fmt: skip
    return Compiled(**found, descriptors=rows)


def _compile(case: TritonCase) -> Compiled:
    os.environ["TRITON_CACHE_DIR"] = str(cache_directory() / "triton")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    import triton
    from triton.backends.compiler import GPUTarget

    compiled = triton.compile(
        _source(case),
        target=GPUTarget("cuda", case.arch, 32),
        options={"num_warps": case.warps, "num_stages": case.stages},
    )
    found = compiled.metadata
    return Compiled(
        ptx=compiled.asm["ptx"],
        entry=found.name,
        shared_bytes=found.shared,
        scratch_bytes=found.global_scratch_size,
        scratch_alignment=max(found.global_scratch_align, 1),
        descriptors=tuple(_descriptor(row) for row in found.tensordesc_meta or ()),
    )


def _descriptor(row: Mapping[str, Any]) -> Descriptor:
    rows, columns = row["block_size"]
    # As in CUtensorMapSwizzle: 1, 2, 3 are 32, 64, 128 bytes.
    return Descriptor((rows, columns), (0, 32, 64, 128)[row["swizzle"]])


def _source(case: TritonCase) -> Any:
    """The kernel with its signature, constants and what is known of its arguments."""
    import triton.compiler
    from triton.experimental.gluon._runtime import GluonASTSource

    from tests.ptx import triton_kernels

    kernel = {
        "pointers": triton_kernels.product_by_pointers,
        "descriptors": triton_kernels.product_by_descriptors,
        "own-descriptors": triton_kernels.product_by_own_descriptors,
        "layouts": triton_kernels.product_with_layouts,
        "ring": triton_kernels.product_by_ring,
    }[case.style]
    is_gluon = case.style in ("layouts", "ring")
    constants = _layout_constants(case) if is_gluon else _constants(case)
    signature = {**_operand_types(case), **dict.fromkeys(_SIZES, "i32"),
                 **dict.fromkeys(constants, "constexpr")}  # fmt: skip
    make = GluonASTSource if is_gluon else triton.compiler.ASTSource
    return make(fn=kernel, signature=signature, constexprs=constants, attrs=_multiples(case))


def _tile(case: TritonCase) -> dict[str, Any]:
    names = ("block_m", "block_n", "block_k")
    return {
        **dict(zip(names, case.block, strict=True)),
        "a_transposed": case.a_transposed,
        "b_transposed": case.b_transposed,
    }


def _constants(case: TritonCase) -> dict[str, Any]:
    import triton.language as tl

    return {
        **_tile(case),
        "a_scaled": case.a_scaled,
        "accumulator": getattr(tl, case.sum_dtype),
        "specialized": case.specialized,
        "precision": case.precision,
    }


def _layout_constants(case: TritonCase) -> dict[str, Any]:
    from tests.ptx.triton_cases import ELEMENT_BYTES

    ring = {"stages": case.stages} if case.style == "ring" else {}
    return {
        **_tile(case),
        **ring,
        "swizzle_a": case.swizzle[0],
        "swizzle_b": case.swizzle[1],
        "bits": 8 * ELEMENT_BYTES[case.dtype],
        "mma_n": case.block[1],
        "warps": case.warps,
    }


def _operand_types(case: TritonCase) -> dict[str, str]:
    dtype, out = _DTYPES[case.dtype], _DTYPES[case.result_dtype]
    if case.style != "descriptors":
        return {"a": f"*{dtype}", "b": f"*{dtype}", "c": f"*{out}"}
    m, n, k = case.block
    a = f"{k},{m}" if case.a_transposed else f"{m},{k}"
    b = f"{n},{k}" if case.b_transposed else f"{k},{n}"
    return {
        "a": f"tensordesc<{dtype}[{a}]>",
        "b": f"tensordesc<{dtype}[{b}]>",
        "c": f"tensordesc<{out}[{m},{n}]>",
    }


def _multiples(case: TritonCase) -> dict[tuple[int], list[list[Any]]]:
    """Which arguments are multiples of 16: all pointers (they are aligned), sizes by the case."""
    if case.style == "layouts":
        return {}
    known = [0, 1, 2] if case.style != "descriptors" else []
    known += {"all": range(3, 9), "strides": range(6, 9), "none": ()}[case.multiples]
    return {(index,): [["tt.divisibility", 16]] for index in known}
