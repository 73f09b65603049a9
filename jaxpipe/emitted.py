"""Which source a problem, a schedule and a target were emitted as, remembered between processes.

In: the three. Out: the Kernel that the emitters made of them, or None. What is remembered is bound
to the text of every file that decides the source, so a changed emitter finds nothing. Emitting
costs some 10 ms, reading back below one. The binaries do not depend on this: they stay addressed
by the source itself (toolchain/cache.py). It must not know how kernels are emitted.

File: 64 hex digits of SHA-256 over the rest, a line feed, JSON of the kernel's parts.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import platform
from dataclasses import asdict, dataclass
from typing import Any

from jaxpipe.kernel import (
    Kernel,
    Launch,
    Param,
    Pointer,
    Scalar,
    Size,
    SizeOf,
    TensorMap,
    Tiles,
)
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import Arch
from jaxpipe.toolchain.cache import keep

PACKAGE = pathlib.Path(__file__).parent
GENERATOR = (
    "errors.py", "settings.py", "version.py", "target.py", "dtypes.py", "epilogue.py",
    "problem.py", "schedule.py", "wgmma.py", "geometry_hopper.py", "legality_hopper.py",
    "legality_ampere.py", "legality.py", "kernel.py", "dynamic.py",
    "ir", "transform", "codegen", "emitted.py", "compiler.py",
)  # fmt: skip
"""What the source of a kernel depends on (tests/toolchain/test_emitted.py compares the imports)."""
_PARAMS: dict[str, type[Pointer] | type[Scalar] | type[TensorMap] | type[SizeOf]]
_PARAMS = {p.__name__: p for p in (Pointer, Scalar, TensorMap, SizeOf)}


def generator_digest(package: pathlib.Path = PACKAGE) -> str:
    """Hex SHA-256 over Python's version and the files of GENERATOR, empty if one is unreadable."""
    digest = hashlib.sha256(platform.python_version().encode())
    try:
        for path in sorted(_files(package)):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()}\0{len(text)}\0".encode())
            digest.update(text)
    except OSError:
        return ""
    return digest.hexdigest()


def _files(package: pathlib.Path) -> list[pathlib.Path]:
    found = []
    for name in GENERATOR:
        path = package / name
        found += [p for p in path.rglob("*.[pc]*") if p.suffix in (".py", ".cuh")] or [path]
    return found


DIGEST = generator_digest()
"""Of the files as they were when this process imported them."""


@dataclass(frozen=True, slots=True)
class EmittedKernels:
    """A directory of emitted kernels; created at the first store."""

    directory: pathlib.Path

    def path(self, problem: Problem, schedule: GpuSchedule, arch: Arch) -> pathlib.Path:
        """Where the kernel of the three lies or would lie."""
        text = "\0".join((DIGEST, repr(problem), repr(schedule), repr(arch)))
        key = hashlib.sha256(text.encode()).hexdigest()
        return self.directory / "emitted" / key[:2] / f"{key}.json"

    def load(self, problem: Problem, schedule: GpuSchedule, arch: Arch) -> Kernel | None:
        """What was stored for the three, or None when absent, damaged or of other emitters."""
        if not DIGEST:
            return None
        try:
            checksum, _, text = self.path(problem, schedule, arch).read_text().partition("\n")
            if hashlib.sha256(text.encode()).hexdigest() != checksum:
                return None
            values = json.loads(text)
            launches = tuple(_launch(v) for v in values.pop("launches"))
            sizes = tuple(Size(**v) for v in values.pop("sizes"))
            return Kernel(
                problem=problem, schedule=schedule, launches=launches, sizes=sizes, **values
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, kernel: Kernel, arch: Arch) -> bool:
        """Keep `kernel`; False when the emitters' files changed since they were imported (the
        kernel is then not of the files as they are) or the directory cannot be written."""
        if not DIGEST or generator_digest() != DIGEST:
            return False
        values = asdict(kernel)
        del values["problem"], values["schedule"]
        for launch, plain in zip(kernel.launches, values["launches"], strict=True):
            plain["params"] = [[type(p).__name__, asdict(p)] for p in launch.params]
        text = json.dumps(values, sort_keys=True)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        path = self.path(kernel.problem, kernel.schedule, arch)
        return keep(path, f"{checksum}\n{text}".encode())


def _launch(values: dict[str, Any]) -> Launch:
    params: tuple[Param, ...] = tuple(_PARAMS[k](**_tuples(v)) for k, v in values.pop("params"))
    tiles = tuple(Tiles(**v) for v in values.pop("tiles"))
    return Launch(params=params, tiles=tiles, **_tuples(values))


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _tuple(v) for k, v in values.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
