"""Machine code of a cubin as text, for static checks: instructions per entry and the main loop.

In: a cubin. Out: `Sass` per entry. The disassembler is nvdisasm from the wheel
`nvidia-cuda-nvdisasm`, PATH or CUDA_HOME; where there is none the error says so. It must not know
what the kernels compute. Source: CUDA Binary Utilities, nvdisasm.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from jaxpipe.errors import ToolchainError

TENSOR_CORE = re.compile(r"\b(HMMA|IMMA|QMMA|DMMA|HGMMA|IGMMA|QGMMA|UTCHMMA)\b")
COPY = re.compile(r"\bLDGSTS\b")
_ENTRY = re.compile(r"^\.text\.(?P<name>\w+):")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<text>.+?)\s*;")
_BRANCH = re.compile(r"\bBRA\b.*`\((?P<target>\.L_x_\d+)\)")


@dataclass(frozen=True, slots=True)
class Sass:
    """The instructions of one entry, in order, and its backward branches as (first, last)."""

    instructions: tuple[str, ...]
    loops: tuple[tuple[int, int], ...]

    def count(self, opcode: str) -> int:
        """Instructions whose opcode (modifiers included) matches a regular expression."""
        pattern = re.compile(rf"(?:^|\s)(?:{opcode})(?:[.\s]|$)")
        return sum(1 for text in self.instructions if pattern.search(text))

    def main_loop(self) -> tuple[str, ...]:
        """The loop in which tensor-core instructions are densest; empty without one.

        Slow paths of spin waits stand behind the code and branch back into it, so that longer
        stretches look like loops too: density tells them apart. A loop that copies to shared
        memory as well goes before one that only multiplies (the drain of a pipeline).
        """
        bodies = [self.instructions[first : last + 1] for first, last in self.loops]
        busy = [b for b in bodies if tensor_instructions(b)]
        copying = [b for b in busy if any(COPY.search(text) for text in b)]
        return max(copying or busy, key=_density, default=())


def _density(body: tuple[str, ...]) -> float:
    return tensor_instructions(body) / len(body)


def tensor_instructions(body: tuple[str, ...]) -> int:
    """How many of `body` use the tensor cores."""
    return sum(1 for text in body if TENSOR_CORE.search(text))


@functools.cache
def find() -> str:
    """Path of nvdisasm; ToolchainError lists what was searched."""
    places = []
    spec = importlib.util.find_spec("nvidia")
    for root in list(spec.submodule_search_locations or ()) if spec else []:
        places += sorted(glob.glob(os.path.join(root, "**", "bin", "nvdisasm"), recursive=True))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            places.append(os.path.join(home, "bin", "nvdisasm"))
    for place in places:
        if os.path.isfile(place):
            return place
    if on_path := shutil.which("nvdisasm"):
        return on_path
    raise ToolchainError(
        f"no nvdisasm: searched {', '.join(places) or 'no directory'} and PATH; install the wheel "
        "nvidia-cuda-nvdisasm"
    )


def disassemble(cubin: bytes) -> dict[str, Sass]:
    """Every entry of a cubin; ToolchainError with the disassembler's message when it refuses."""
    tool = find()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{tool} refused a cubin of {len(cubin)} bytes: {done.stderr.strip()}")
    return parse(done.stdout)


def parse(text: str) -> dict[str, Sass]:
    """Entries of nvdisasm's listing."""
    sections: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if found := _ENTRY.match(line):
            name = found["name"]
            sections[name] = []
        elif name:
            sections[name].append(line)
    return {name: _entry(lines) for name, lines in sections.items()}


def _entry(lines: list[str]) -> Sass:
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for line in lines:
        if found := _LABEL.match(line):
            labels[found["name"]] = len(instructions)
        elif found := _INSTRUCTION.search(line):
            branch = _BRANCH.search(found["text"])
            if branch and branch["target"] in labels:
                loops.append((labels[branch["target"]], len(instructions)))
            instructions.append(found["text"])
    return Sass(tuple(instructions), tuple(loops))
