"""Runs a compiled TritonCase in the interpreter, as Triton's launcher would, and compares.

Triton's parameters: the kernel's arguments, then the addresses of global scratch memory and of the
profiler's; a tensor descriptor is a tensor map, its two sizes and its two strides.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import time
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from jaxpipe.kernel import Dim3, TensorMap
from jaxpipe.problem import Matmul, Precision
from jaxpipe.ptx.nodes import Module
from jaxpipe.ptx.parse import parse
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Argument, Buffer, Mode, TensorMapArgument, run
from jaxpipe.runtime import reference
from tests.ptx.triton_cases import ELEMENT_BYTES, TritonCase
from tests.ptx.triton_compile import Compiled, Descriptor, compile_case

Shape = tuple[int, int, int]
# Elements between the end of a row and the start of the next: never to be read, never written.
PADDING = {"all": 16, "strides": 16, "none": 3}
MAX_STEPS = 1 << 22


def shapes(case: TritonCase) -> tuple[Shape, ...]:
    """Ragged tiles and more steps than twice the stages; less than one tile; whole tiles."""
    block_m, block_n, block_k = case.block
    ragged = (block_m + block_m // 2 + 5, block_n + block_n // 2 + 3,
              (2 * case.stages + 1) * block_k + block_k // 2 + 1)  # fmt: skip
    few = (block_m // 2 + 1, block_n - 3, block_k // 2 + 3)
    whole = (block_m, 2 * block_n, case.stages * block_k)
    if case.multiples == "all":
        ragged, few = _rounded(ragged), _rounded(few)
    return ragged, few, whole


def _rounded(shape: Shape) -> Shape:
    m, n, k = (max(size // 16, 1) * 16 for size in shape)
    return m, n, k


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: what it took, and the largest error relative to what is admissible."""

    shape: Shape
    mode: Mode
    error_over_tolerance: float
    untouched: bool  # nothing was written outside of the result
    report: Report
    seconds: float

    @property
    def fault(self) -> str:
        """What is wrong, or an empty string."""
        found = [hazard.text for hazard in self.report.hazards]
        if not self.error_over_tolerance <= 1:
            found.append(f"the error is {self.error_over_tolerance:.3g} times what is admissible")
        if not self.untouched:
            found.append("something was written between the rows of the result")
        where = f"{self.shape}, {self.mode.landing} landing, {self.mode.order} warps"
        return f"{where}: {'; '.join(found)}" if found else ""


def outcomes(case: TritonCase, dropped: str = "") -> list[Outcome]:
    """Every shape in every mode; without the lines of the PTX that match the pattern `dropped`."""
    compiled = compile_case(case)
    if dropped:
        ptx, count = re.subn(rf"^.*(?:{dropped}).*$", "", compiled.ptx, flags=re.M)
        assert count, f"nothing in {case.name} matches {dropped}"
        compiled = dataclasses.replace(compiled, ptx=ptx)
    return [
        _run(case, compiled, shape, mode) for shape in shapes(case) for mode in ADVERSARIAL_MODES
    ]


@functools.lru_cache(maxsize=4)
def _parsed(ptx: str) -> Module:
    return parse(ptx)


def tolerance(case: TritonCase, k: int) -> float:
    """Of |got - expected| / max(1, |expected|): jaxpipe's own, and what Triton's kernels add."""
    is_tf32 = case.dtype == "float32" and case.precision == "tf32"
    precision: Precision = "tf32" if is_tf32 else "float32"
    problem = Matmul(1, 1, k, dtype=case.dtype, out_dtype=case.result_dtype, precision=precision)
    limit = reference.tolerance(problem)
    if is_tf32:  # our kernels round operands to TF32, Triton leaves it to hardware: it truncates
        limit += 2.0**-9
    if case.sum_dtype == "float16":  # a rounding a step of 16 elements, of partial sums up to 4
        limit += 2.0**-9 * math.sqrt(k / 16)
    return limit


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """A matrix in memory with its padding, and its values in float64."""

    array: np.ndarray
    values: np.ndarray

    @property
    def ld(self) -> int:
        return int(self.array.shape[1])


def _numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def _poison(dtype: np.dtype) -> float:
    return float("nan") if dtype.kind not in "iu" else float(np.iinfo(dtype).min)


def _stored(case: TritonCase, rng: np.random.Generator, rows: int, columns: int, scale: float
            ) -> _Stored:  # fmt: skip
    dtype = _numpy_dtype(case.dtype)
    ld = _padded(case, columns, ELEMENT_BYTES[case.dtype])
    array = np.full((rows, ld), _poison(dtype)).astype(dtype)
    if dtype.kind == "i":
        array[:, :columns] = rng.integers(-128, 128, (rows, columns))
    else:
        array[:, :columns] = scale * rng.standard_normal((rows, columns), np.float32)
    return _Stored(array, array[:, :columns].astype(np.float64))


def _padded(case: TritonCase, columns: int, element_bytes: int) -> int:
    """A leading dimension that keeps what the compiler was told and what tensor maps need."""
    if case.multiples == "none":
        multiple = 1 if "descriptors" not in case.style else 16 // element_bytes
    else:
        multiple = 16
    return -(-(columns + PADDING[case.multiples]) // multiple) * multiple


def _run(case: TritonCase, compiled: Compiled, shape: Shape, mode: Mode) -> Outcome:
    m, n, k = shape
    rng = np.random.default_rng(m * 7 + n * 3 + k)
    a = _stored(case, rng, *((k, m) if case.a_transposed else (m, k)), 1.0)
    b = _stored(case, rng, *((n, k) if case.b_transposed else (k, n)), 1.0 / math.sqrt(k))
    left = a.values.T if case.a_transposed else a.values
    right = b.values.T if case.b_transposed else b.values
    wanted = (2.0 if case.a_scaled else 1.0) * left @ right
    out_dtype = _numpy_dtype(case.result_dtype)
    out = np.full((m, _padded(case, n, out_dtype.itemsize)), _poison(out_dtype)).astype(out_dtype)
    before = out.copy()
    grid = (-(-m // case.block[0]), -(-n // case.block[1]), 1)
    module = _parsed(compiled.ptx)
    begun = time.perf_counter()
    report = run(
        module, compiled.entry, grid=grid, block=_threads(module, compiled),
        args=_arguments(compiled, shape, (a, b), out, grid),
        shared_bytes=compiled.shared_bytes, mode=mode, max_steps=MAX_STEPS,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    error = _error(out[:, :n].astype(np.float64), wanted) / max(tolerance(case, k), 1e-12)
    untouched = out[:, n:].tobytes() == before[:, n:].tobytes()
    return Outcome(shape, mode, error, untouched, report, seconds)


def _error(got: np.ndarray, wanted: np.ndarray) -> float:
    difference = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted))
    return float("inf") if np.isnan(difference).any() else float(difference.max())


def _threads(module: Module, compiled: Compiled) -> Dim3:
    """Triton prints what it needs, warps of specialised roles included."""
    return module.entries[compiled.entry].required_threads


def _arguments(
    compiled: Compiled,
    shape: Shape,
    operands: tuple[_Stored, _Stored],
    out: np.ndarray,
    grid: Dim3,
) -> list[Argument]:
    a, b = operands
    held = (Buffer(a.array, writable=False), Buffer(b.array, writable=False),
            Buffer(out, written=False))  # fmt: skip
    sizes = (a.values.shape, b.values.shape, (shape[0], shape[1]))
    args: list[Argument] = []
    if compiled.descriptors:
        for buffer, size, row in zip(held, sizes, compiled.descriptors, strict=True):
            args += _descriptor_arguments(buffer, (size[0], size[1]), row)
    else:
        args += held
    args += [*shape, a.ld, b.ld, out.shape[1]]
    scratch = np.zeros(max(grid[0] * grid[1] * compiled.scratch_bytes, 1), np.uint8)
    return [*args, Buffer(scratch, written=False), 0]


def _descriptor_arguments(buffer: Buffer, size: tuple[int, int], row: Descriptor) -> list[Argument]:
    array = buffer.array
    map_ = TensorMap(
        role="lhs",  # of no account here
        dtype=array.dtype.name,
        dims=(size[1], size[0]),
        strides_bytes=(array.shape[1] * array.itemsize,),
        box=(row.box[1], row.box[0]),
        element_strides=(1, 1),
        swizzle_bytes=row.swizzle_bytes,
    )
    return [TensorMapArgument(map_, buffer), *size, array.shape[1], 1]


_REGISTERS_OF_A = r"wgmma\.mma_async\S+ \{[^}]*\}, \{"


def claims(case: TritonCase) -> list[str]:
    """Patterns that the PTX must match for the case to be what its name says."""
    copies = case.style == "pointers" and case.stages > 1 and case.multiples == "all"
    asynchronous = [r"cp\.async\.c[ag]\.shared"] if copies else []
    if case.arch == 80:
        return [r"mma\.sync" if case.precision != "ieee" else r"fma\.rn\.f32", *asynchronous]
    needed = [*asynchronous, rf"wgmma\.mma_async\S+m64n\d+k{32 // ELEMENT_BYTES[case.dtype]}\."]
    needed += [r"cp\.async\.bulk\.tensor\.2d\.shared"] if "descriptors" in case.style else []
    needed += [r"tensormap\.replace"] if case.style == "own-descriptors" else []
    needed += [r"cp\.async\.mbarrier\.arrive\.noinc"] if case.style == "ring" else []
    needed += [_REGISTERS_OF_A] if case.a_scaled else []
    needed += [r"setmaxnreg"] if case.specialized else []
    return needed


def unmet_claims(case: TritonCase, compiled: Compiled) -> list[str]:
    """The claims that the PTX does not keep."""
    return [pattern for pattern in claims(case) if not re.search(pattern, compiled.ptx)]
