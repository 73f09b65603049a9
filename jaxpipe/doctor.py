"""What works on this machine, and why the rest does not: one line a finding.

In: the installed packages, the driver, the compilers, the cache directory. Out: a Report that
prints itself. Every check stands alone: one that fails is a finding, never an end.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax

from jaxpipe import _native, settings, target
from jaxpipe.errors import JaxpipeError
from jaxpipe.problem import Matmul
from jaxpipe.runtime import calibrate, device, execute, reference, targets
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule
from jaxpipe.toolchain import nvcc, nvrtc
from jaxpipe.toolchain.cache import SUFFIX, KernelCache
from jaxpipe.version import VERSION

State = Literal["ok", "no", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, whether it serves ("no": absent, "fault": broken), facts."""

    what: str
    state: State
    text: str

    def __str__(self) -> str:
        return f"{self.what:<16} {self.state:<6} {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in order."""

    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """True when nothing is broken; what is merely absent does not count."""
        return all(f.state != "fault" for f in self.findings)

    def __str__(self) -> str:
        return "\n".join(str(f) for f in self.findings)


def doctor() -> Report:
    """Look at everything and return the Report; print it to read it."""
    return Report(tuple(f for check in CHECKS for f in _run(check)))


def _run(check: Check) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # a check that breaks is what the reader came to see
        yield Finding(check.__name__.strip("_"), "fault", _said(error))


# ------------------------------------------------------------------ checks
def _versions() -> Iterator[Finding]:
    import jaxlib

    yield Finding("jaxpipe", "ok", f"{VERSION}, Python {platform.python_version()}")
    yield Finding("jax", "ok", f"{jax.__version__}, jaxlib {jaxlib.__version__}")


def _extension() -> Iterator[Finding]:
    api = ".".join(map(str, _native.FFI_API_VERSION))
    yield Finding("extension", "ok", f"{_native.__file__}, built with XLA FFI API {api}")
    names = targets.register()
    yield Finding("FFI handlers", "ok", f"registered: {', '.join(names)}")


def _cuda_driver() -> Iterator[Finding]:
    try:
        path, version = _native.cuda_driver()
    except RuntimeError as error:
        yield Finding("CUDA driver", "no", str(error))
        return
    yield Finding("CUDA driver", "ok", f"{path}, for CUDA {version // 1000}.{version % 1000 // 10}")
    for ordinal, row in enumerate(_native.cuda_devices()):
        major, minor = row["compute_capability"]
        yield Finding(f"GPU {ordinal}", *_gpu_line(row, major, minor))


def _gpu_line(row: dict[str, Any], major: int, minor: int) -> tuple[State, str]:
    facts = (
        f"{row['name']}, compute capability {major}.{minor}, {row['sm_count']} SMs, "
        f"{row['l2_bytes'] >> 20} MiB L2, {row['shared_per_block_bytes']} bytes shared per block"
    )
    try:
        arch = target.arch_of_capability(major, minor)
    except JaxpipeError as error:
        return "no", f"{facts}; {error}"
    known = target.device_by_model(row["name"])
    return "ok", f"{facts}; kernels for {arch.name}, model {known.name if known else 'by likeness'}"


def _target() -> Iterator[Finding]:
    try:
        yield Finding("kernels for", "ok", device.resolve(()).name)
    except JaxpipeError as error:
        yield Finding("kernels for", "no", str(error))


def _compilers() -> Iterator[Finding]:
    try:
        library = nvrtc.load()
        known = ", ".join(map(str, library.architectures))
        yield Finding("NVRTC", "ok", f"{library.version} at {library.path}; architectures {known}")
    except JaxpipeError as error:
        yield Finding("NVRTC", "no", f"{error}")
    try:
        path = nvcc.find()
        yield Finding("nvcc", "ok", f"{nvcc.version(path)} at {path}")
    except JaxpipeError as error:
        yield Finding("nvcc", "no", f"{error}")


def _said(error: Exception) -> str:
    """An error on one line of readable length: some quote all arguments of a call."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder=" ...")


def _cache() -> Iterator[Finding]:
    directory = settings.cache_dir()
    if not directory.exists():
        yield Finding("kernel cache", "ok", f"{directory} (empty, made at the first compilation)")
        return
    if reason := _unwritable(directory):
        yield Finding("kernel cache", "fault", f"{directory}: {reason}; set JAXPIPE_CACHE_DIR")
    files = sorted(directory.glob(f"kernels/*/*{SUFFIX}"))
    cache = KernelCache(directory)
    bad = [path for path in files if cache.load(path.stem) is None]
    size = sum(path.stat().st_size for path in files)
    text = f"{directory}: {len(files)} kernels, {size / 1e6:.1f} MB"
    if bad:
        text += f"; {len(bad)} unreadable, rebuilt when asked for: {bad[0]}"
    yield Finding("kernel cache", "ok", text)


def _unwritable(directory: pathlib.Path) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return str(error)


def _settings() -> Iterator[Finding]:
    for name in sorted(name for name in os.environ if name.startswith("JAXPIPE_")):
        if name not in settings.SETTINGS:
            yield Finding(name, "fault", "no such setting: " + ", ".join(settings.SETTINGS))
            continue
        try:
            yield Finding(name, "ok", f"{settings.get(name)}")
        except JaxpipeError as error:
            yield Finding(name, "fault", str(error))


def _executors() -> Iterator[Finding]:
    yield Finding("xla", "ok", f"on {', '.join(sorted({d.platform for d in jax.devices()}))}")
    yield _executor("host", "cpu", HostSchedule())
    yield _executor("interpret", "cpu", _SMALL, arch="sm_80")
    gpus = [d for d in jax.devices() if d.platform in device.GPU_PLATFORMS]
    if not gpus:
        yield Finding("cuda", "no", "JAX sees no GPU (pip install 'jaxpipe[cuda13]' on one)")
        return
    yield _executor("cuda", "gpu", _SMALL, arch=device.of_jax(gpus[0]).arch)


_SMALL = GpuSchedule(block_m=32, block_n=32, block_k=32, warps_m=1, warps_n=1, smem_stages=2)


def _executor(
    name: Literal["host", "cuda", "interpret"], backend: str, schedule: Schedule, arch: str = ""
) -> Finding:
    """A 32 x 32 x 64 product on an executor, compared with float64."""
    problem = Matmul(32, 32, 64)
    try:
        with jax.default_device(jax.local_devices(backend=backend)[0]):
            operands = reference.random_operands(problem, 0)
            run = jax.jit(
                lambda ops: execute.run(problem, schedule, ops, executor=name, arch=arch)[0]
            )
            error = reference.sampled_error(problem, operands, (run(operands),))
    except JaxpipeError as error_:
        return Finding(name, "no", str(error_))
    except Exception as error_:  # as in _run: one executor that breaks hides no other
        return Finding(name, "fault", _said(error_))
    if not error <= 1.0:
        return Finding(name, "fault", f"{problem} is wrong: error {error:.3g} times its limit")
    return Finding(name, "ok", f"{problem} is right")


Check = Callable[[], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    _versions, _extension, _cuda_driver, _target, _compilers, _cache, _settings, _executors,
)  # fmt: skip


# ------------------------------------------------------------------ command line
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`jaxpipe doctor`, or `jaxpipe doctor --calibrate` on an idle machine."""
    parser.add_argument(
        "--calibrate", action="store_true",
        help="measure what the performance models can take from this machine, and keep it",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 when something is broken, 0 when at most something is absent."""
    if args.calibrate:
        for name, measured in calibrate.calibrate().items():
            print(name, *(f"{field}={value:.4g}" for field, value in measured.items()))
        return 0
    report = doctor()
    print(report)
    return 0 if report.is_healthy else 1
