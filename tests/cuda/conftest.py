"""Builds the stand-in driver, and a child process that opened it (a process has one driver)."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

from tests.cuda import machine

ROOT = pathlib.Path(__file__).parents[2]


def compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise RuntimeError("these tests build csrc/tests: they need the C++ compiler of the extension")


def build(name: str, folder: pathlib.Path) -> pathlib.Path:
    library = folder / f"lib{name}.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-isystem", jax.ffi.include_dir()]
    source = ROOT / "csrc" / "tests" / f"{name}.cc"
    subprocess.run([compiler(), *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="session")
def libraries(tmp_path_factory) -> tuple[pathlib.Path, pathlib.Path]:
    folder = tmp_path_factory.mktemp("fakes")
    return build("fake_cuda", folder), build("fake_xla", folder)


class Child:
    """A process in which JAXPIPE_LIBCUDA names the stand-in; runs functions of machine.py."""

    def __init__(self, pool: concurrent.futures.Executor) -> None:
        self._pool = pool

    def __call__(self, function, *args, **kwargs):
        self._pool.submit(machine.reset).result()
        return self._pool.submit(function, *args, **kwargs).result(timeout=60)


@pytest.fixture(scope="session")
def child(libraries):
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(
        1, context, initializer=machine.start, initargs=[str(path) for path in libraries]
    )
    with pool:
        yield Child(pool)


assert sys.platform == "linux", "the stand-in driver is a Linux library"
