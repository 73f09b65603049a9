"""The table of contents of the compiler: problem and schedule to nests, CUDA, PTX and cubin.

In: problem, schedule, target. Out: `Kernel` (source and launches) or `CompiledKernel` (binaries
too). Illegal schedules are refused before anything is emitted. It must not know JAX or a driver.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

from jaxpipe import settings
from jaxpipe.codegen.ampere import emit_ampere
from jaxpipe.codegen.hopper import emit_hopper
from jaxpipe.emitted import EmittedKernels
from jaxpipe.errors import CompileError
from jaxpipe.kernel import CompiledKernel, Kernel
from jaxpipe.legality import require
from jaxpipe.problem import Problem
from jaxpipe.schedule import Family, GpuSchedule
from jaxpipe.target import Arch, Device, arch, device
from jaxpipe.toolchain import nvcc, nvrtc
from jaxpipe.toolchain.binaries import Binaries
from jaxpipe.toolchain.cache import KernelCache
from jaxpipe.transform.detect import Verdict
from jaxpipe.transform.recipe import Lowered, lower_ampere
from jaxpipe.transform.recipe_hopper import lower_hopper
from jaxpipe.version import VERSION

Target = Arch | Device | str


def target_arch(target: Target) -> Arch:
    """The architecture of an Arch, a Device, or the name of either (`sm_80`, `a100`)."""
    match target:
        case Arch():
            return target
        case Device(arch=name):
            return arch(name)
        case str() if target.startswith("sm_"):
            return arch(target)
        case str():
            return arch(device(target).arch)


# ---------------------------------------------------------------------- emitting
@dataclass(frozen=True, slots=True)
class Compiler:
    """How kernels of one family come about: the recipe and the printer of its nests."""

    lower: Callable[[Problem, GpuSchedule, Arch], tuple[Lowered, ...]]
    emit: Callable[[Problem, GpuSchedule, Arch, tuple[Lowered, ...]], Kernel]


FAMILIES: dict[Family, Compiler] = {
    "ampere": Compiler(lower_ampere, emit_ampere),
    "hopper": Compiler(lower_hopper, emit_hopper),
}


@functools.lru_cache(maxsize=1024)
def lower(problem: Problem, schedule: GpuSchedule, target: Arch) -> tuple[Lowered, ...]:
    """Nests of every launch after every stage; ScheduleError when illegal."""
    require(schedule, problem, target)
    if problem.is_empty:
        return ()
    return FAMILIES[schedule.family].lower(problem, schedule, target)


def verdicts(problem: Problem, schedule: GpuSchedule, target: Target) -> tuple[Verdict, ...]:
    """Which buffers of the kernel are pipelined, and why; for `explain`."""
    found = lower(problem, schedule, target_arch(target))
    return found[0].verdicts if found else ()


@functools.lru_cache(maxsize=1024)
def emit_kernel(problem: Problem, schedule: GpuSchedule, arch: Arch) -> Kernel:
    """Self-contained CUDA C++ and its launches; an empty result launches nothing.

    Raises ScheduleError with every reason when the schedule is illegal. The same arguments give
    the same bytes in every process.
    """
    require(schedule, problem, arch)
    if problem.is_empty:
        source = f"// {problem}: no result, nothing to launch\n"
        return Kernel("jaxpipe_empty", source, arch.name, problem, schedule, ())
    return FAMILIES[schedule.family].emit(problem, schedule, arch, lower(problem, schedule, arch))


# ---------------------------------------------------------------------- compiling
@dataclass(frozen=True, slots=True)
class Toolchain:
    """A CUDA compiler: name with version, flags, and the function that runs it."""

    version: str
    flags: tuple[str, ...]
    compile: Callable[[str, str, tuple[str, ...]], Binaries]


def toolchain(*, line_info: bool = False) -> Toolchain:
    """The compiler that JAXPIPE_COMPILER names; ToolchainError when it is not installed."""
    if settings.get("JAXPIPE_COMPILER") == "nvcc":
        flags = (*nvcc.FLAGS, nvcc.LINE_INFO) if line_info else nvcc.FLAGS
        return Toolchain(nvcc.version(nvcc.find()), flags, nvcc.compile)
    flags = (*nvrtc.FLAGS, nvrtc.LINE_INFO) if line_info else nvrtc.FLAGS
    return Toolchain(nvrtc.version(settings.cache_dir()), flags, nvrtc.compile)


def compile_kernel(
    problem: Problem, schedule: GpuSchedule, arch_or_device: Target, *, line_info: bool = False
) -> CompiledKernel:
    """The kernel with PTX, cubin and resources; from the cache where it was compiled before.

    line_info keeps source lines in the PTX (for the interpreter's reports). Raises ScheduleError
    before compiling, CompileError with the compiler's log, ToolchainError without a compiler.
    """
    emitted = EmittedKernels(settings.cache_dir())
    kernel = _kernel(problem, schedule, target_arch(arch_or_device), emitted)
    return compile_source(kernel, toolchain(line_info=line_info))


@functools.lru_cache(maxsize=1024)
def _kernel(problem: Problem, schedule: GpuSchedule, arch: Arch, emitted: EmittedKernels) -> Kernel:
    """The emitted kernel, read back where an earlier process emitted it: then the same rules, whose
    text is part of what is asked for, found it legal."""
    found = emitted.load(problem, schedule, arch)
    if found is None:
        found = emit_kernel(problem, schedule, arch)
        emitted.store(found, arch)
    return found


def compile_source(kernel: Kernel, tools: Toolchain) -> CompiledKernel:
    """Binaries of a Kernel, from memory, the cache directory or the compiler."""
    return _compiled(kernel, tools, KernelCache(settings.cache_dir()))


@functools.lru_cache(maxsize=512)
def _compiled(kernel: Kernel, tools: Toolchain, cache: KernelCache) -> CompiledKernel:
    key = kernel.key(tools.version, tools.flags, VERSION)
    found, seconds = cache.load(key), 0.0
    if found is None:
        started = time.perf_counter()
        found = _compile(kernel, tools)
        seconds = time.perf_counter() - started
        cache.store(key, found)
    return CompiledKernel(
        kernel, key, found.ptx, found.cubin, found.resources, found.compiler, seconds
    )


def _compile(kernel: Kernel, tools: Toolchain) -> Binaries:
    try:
        return tools.compile(kernel.source, kernel.target, tools.flags)
    except CompileError as error:
        raise CompileError(
            f"{kernel.problem} under {kernel.schedule} for {kernel.target}: {error}"
        ) from error
