"""NVRTC: CUDA C++ to PTX and cubin in this process, with no driver and no CUDA toolkit.

In: source text, exact architecture, flags. Out: `Binaries`. The library comes from a wheel
(`nvidia-cuda-nvrtc`), a system installation, or the path in JAXPIPE_NVRTC; when none is found the
error lists every place that was searched. Source: NVRTC user guide.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import glob
import hashlib
import importlib.util
import os
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from jaxpipe import settings
from jaxpipe.errors import CompileError, TargetError, ToolchainError
from jaxpipe.toolchain.binaries import Binaries, parse_log
from jaxpipe.toolchain.cache import keep

FLAGS: tuple[str, ...] = ("--std=c++17", "--ptxas-options=-v")
LINE_INFO = "--generate-line-info"
SOURCE_NAME = "kernel.cu"  # in logs and line information
_SYSTEM_NAMES = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """A loaded library: its path, `nvrtc 13.5`, the architectures it knows as numbers (80, ...)."""

    path: str
    version: str
    architectures: tuple[int, ...]
    handle: ctypes.CDLL


def candidates() -> Iterator[str]:
    """Paths and names to try, best first."""
    if chosen := settings.get("JAXPIPE_NVRTC"):
        yield str(chosen)
        return
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    for root in roots:
        found = glob.glob(os.path.join(root, "*", "lib", "libnvrtc.so.*"))
        yield from sorted((p for p in found if "builtins" not in p), reverse=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield os.path.join(home, "lib64", "libnvrtc.so")
    yield from _SYSTEM_NAMES
    yield "/usr/local/cuda/lib64/libnvrtc.so"


def load() -> Nvrtc:
    """The first library that loads; ToolchainError names everything that was tried."""
    return _load(tuple(candidates()))


def version(directory: pathlib.Path) -> str:
    """`nvrtc 13.5` of the library that `load` would take, without loading it where `directory`
    remembers that very file (path, size, time of change): loading costs some 10 ms."""
    path = next(iter(candidates()), "")
    try:
        found = os.stat(path)
    except OSError:
        return load().version
    identity = f"{path}\0{found.st_size}\0{found.st_mtime_ns}"
    note = directory / f"nvrtc-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
    with contextlib.suppress(OSError):
        known = note.read_text()
        if re.fullmatch(r"nvrtc \d+\.\d+", known):
            return known
    loaded = load().version
    keep(note, loaded.encode())
    return loaded


@functools.cache
def _load(paths: tuple[str, ...]) -> Nvrtc:
    failures = []
    for path in paths:
        try:
            handle = ctypes.CDLL(path)
        except OSError as error:
            failures.append(f"{path} ({error})")
            continue
        handle.nvrtcGetErrorString.restype = ctypes.c_char_p
        return Nvrtc(path, _version(handle), _architectures(handle), handle)
    raise ToolchainError(
        "no NVRTC library: searched " + "; ".join(failures) + ". Install the wheel "
        "nvidia-cuda-nvrtc (extra `jaxpipe[interpret]`), or set JAXPIPE_NVRTC to a libnvrtc.so"
    )


def _version(handle: ctypes.CDLL) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"nvrtc {major.value}.{minor.value}"


def _architectures(handle: ctypes.CDLL) -> tuple[int, ...]:
    count = ctypes.c_int()
    handle.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    values = (ctypes.c_int * count.value)()
    handle.nvrtcGetSupportedArchs(values)
    return tuple(values)


def compile(source: str, arch: str, flags: tuple[str, ...] = FLAGS) -> Binaries:
    """Compile self-contained `source` for the exact `arch` ("sm_80", "sm_90a").

    Raises TargetError when the library does not know the architecture, CompileError with the log
    when it refuses the source, ToolchainError when there is no library.
    """
    nvrtc = load()
    number = int("".join(c for c in arch if c.isdigit()))
    if number not in nvrtc.architectures:
        known = ", ".join(f"sm_{n}" for n in nvrtc.architectures)
        raise TargetError(
            f"{nvrtc.version} ({nvrtc.path}) cannot compile for {arch}: it knows {known}; "
            "install a newer nvidia-cuda-nvrtc"
        )
    program = _Program(nvrtc, source)
    try:
        log = program.compile((f"--gpu-architecture={arch}", *flags))
        ptx = program.text("PTX").rstrip(b"\0").decode()
        # Line information names the working directory: the same source must give the same text.
        ptx = ptx.replace(f'"{os.getcwd()}/{SOURCE_NAME}"', f'"{SOURCE_NAME}"')
        cubin = program.text("CUBIN")
        return Binaries(ptx, cubin, parse_log(log), log, nvrtc.version)
    finally:
        program.destroy()


class _Program:
    """One nvrtcProgram; `destroy` must be called."""

    def __init__(self, nvrtc: Nvrtc, source: str) -> None:
        self._nvrtc = nvrtc
        self._program = ctypes.c_void_p()
        self._check(
            "nvrtcCreateProgram", ctypes.byref(self._program), source.encode(),
            SOURCE_NAME.encode(), 0, None, None,
        )  # fmt: skip

    def compile(self, options: tuple[str, ...]) -> str:
        """Run the compiler; its log, or CompileError that carries it."""
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = self._nvrtc.handle.nvrtcCompileProgram(self._program, len(options), words)
        log = self.text("ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != 0:
            raise CompileError(
                f"{self._nvrtc.version} refused a kernel ({self._message(status)}), options "
                f"{' '.join(options)}:\n{log}"
            )
        return log

    def text(self, what: str) -> bytes:
        """The bytes behind nvrtcGet<what>."""
        size = ctypes.c_size_t()
        self._check(f"nvrtcGet{what}Size", self._program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(f"nvrtcGet{what}", self._program, buffer)
        return buffer.raw

    def destroy(self) -> None:
        """Free the program."""
        self._nvrtc.handle.nvrtcDestroyProgram(ctypes.byref(self._program))

    def _check(self, function: str, *arguments: object) -> None:
        status = getattr(self._nvrtc.handle, function)(*arguments)
        if status != 0:
            raise ToolchainError(f"{function} failed: {self._message(status)}")

    def _message(self, status: int) -> str:
        text: bytes = self._nvrtc.handle.nvrtcGetErrorString(status)
        return text.decode()
