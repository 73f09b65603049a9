"""nvcc: the toolkit's compiler, for those who ask for it (JAXPIPE_COMPILER=nvcc).

In: source text, exact architecture, flags. Out: `Binaries`, as from NVRTC. What was searched
stands in the error when there is no nvcc.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from jaxpipe import settings
from jaxpipe.errors import CompileError, ToolchainError
from jaxpipe.toolchain.binaries import Binaries, parse_log

FLAGS: tuple[str, ...] = ("-std=c++17", "-Xptxas", "-v")
LINE_INFO = "-lineinfo"


def find() -> str:
    """Path of nvcc: JAXPIPE_NVCC, then PATH, then CUDA_HOME and /usr/local/cuda."""
    if chosen := settings.get("JAXPIPE_NVCC"):
        tried = [str(chosen)]
    else:
        homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
        tried = ["nvcc", *(os.path.join(h, "bin", "nvcc") for h in homes if h)]
    for name in tried:
        if path := shutil.which(name):
            return path
    raise ToolchainError(
        f"no nvcc: searched {', '.join(tried)}. Install the CUDA toolkit or the wheel "
        "nvidia-cuda-nvcc and set JAXPIPE_NVCC, or use the default JAXPIPE_COMPILER=nvrtc"
    )


@functools.cache
def version(path: str) -> str:
    """`nvcc 13.0.88` of the binary at `path`."""
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return f"nvcc {found[1] if found else 'unknown'}"


def compile(source: str, arch: str, flags: tuple[str, ...] = FLAGS) -> Binaries:
    """Compile self-contained `source` for the exact `arch`; CompileError carries nvcc's output."""
    path = find()
    generation = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
    with tempfile.TemporaryDirectory(prefix="jaxpipe-nvcc-") as folder:
        directory = pathlib.Path(folder)
        (directory / "kernel.cu").write_text(source)
        log = _run(path, directory, ("-cubin", generation, *flags, "-o", "kernel.cubin"))
        ptx_flags = ("-ptx", f"-arch={arch.replace('sm_', 'compute_')}", *flags)
        _run(path, directory, (*ptx_flags, "-o", "kernel.ptx"))
        ptx = (directory / "kernel.ptx").read_text()
        cubin = (directory / "kernel.cubin").read_bytes()
    return Binaries(ptx, cubin, parse_log(log), log, version(path))


def _run(path: str, directory: pathlib.Path, options: tuple[str, ...]) -> str:
    command = [path, *options, "kernel.cu"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr
