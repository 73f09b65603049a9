"""Build the one extension of jaxpipe, `jaxpipe._native`, with CMake.

Only a C++17 compiler and the FFI headers inside jaxlib are needed: no CUDA toolkit.
`python setup.py build_ext --inplace` leaves the extension beside the Python sources.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).parent.resolve()


def ffi_include_dir() -> pathlib.Path:
    """Where XLA's FFI headers are: JAXPIPE_FFI_INCLUDE, else inside the installed jaxlib."""
    if given := os.environ.get("JAXPIPE_FFI_INCLUDE"):
        return pathlib.Path(given)
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "building jaxpipe needs jaxlib (for xla/ffi/api/ffi.h): pip install jaxlib"
        )
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "include"


class CMakeBuild(build_ext):
    """Configure and build csrc/ once; the target is the extension itself."""

    def build_extension(self, ext: Extension) -> None:
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        build_dir = HERE / "build" / f"cmake-{sys.implementation.cache_tag}"
        build_dir.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        configure = [
            shutil.which("cmake") or "cmake", "-S", str(HERE), "-B", str(build_dir), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release",
            # An isolated build has its own ninja: the path in an older CMakeCache may be gone.
            f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja') or 'ninja'}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DJAXPIPE_FFI_INCLUDE={ffi_include_dir()}",
            f"-DJAXPIPE_OUTPUT_DIR={target.parent}",
            f"-DJAXPIPE_OUTPUT_NAME={target.name}",
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", str(build_dir), "-j", jobs], check=True)


setup(
    ext_modules=[Extension("jaxpipe._native", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
