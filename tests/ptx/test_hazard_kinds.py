"""Every kind of hazard has a kernel that commits it, reported as that kind at the right line.

tests/ptx/cuda/hazards.cu holds the kernels, each once wrong and once right: the right one is
silent in every mode.
"""

import functools
import pathlib
import re

import numpy as np
import pytest

from jaxpipe.kernel import TensorMap
from jaxpipe.ptx.nodes import Module
from jaxpipe.ptx.report import Report
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Argument, Buffer, Mode, TensorMapArgument, run
from tests.ptx.kernels import cuda_source, module_of

TARGETS = ("sm_80", "sm_90a")
WORDS = 1024
HEADER = pathlib.Path(__file__).parents[2] / "csrc/ptx/hazard.h"
SOURCE = cuda_source("hazards.cu", {})
# What takes an instruction that sm_80 does not have: bulk copies, transactions, wgmma, clusters.
NEEDS_SM_90A = {
    "overwrite_async_read", "proxy_fence", "mbarrier_bytes", "tensor_map", "register_limit",
    "cluster_exit", "wgmma_register", "wgmma_fence", "wgmma_mismatch", "wgmma_descriptor",
}  # fmt: skip
THREADS = {"register_limit": 384} | {name: 128 for name in NEEDS_SM_90A if name.startswith("wgmma")}
KINDS = re.findall(r'X\(k\w+, "([\w-]+)"', HEADER.read_text())
ENTRIES = [(kind.replace("-", "_"), target) for kind in KINDS for target in TARGETS]
PRESENT = [(e, t) for e, t in ENTRIES if t == "sm_90a" or e not in NEEDS_SM_90A]


@functools.cache
def module(target: str, broken: bool) -> Module:
    return module_of(cuda_source("hazards.cu", {"BROKEN": 1} if broken else {}), target)


def marked_line(entry: str) -> int:
    """The marked line of the text that was compiled: one definition is in front of the file."""
    marks = [re.search(r"// FAULT (\w+)", line) for line in SOURCE.splitlines()]
    return 2 + [mark and mark.group(1) for mark in marks].index(entry)


def execute(entry: str, target: str, mode: Mode, *, broken: bool) -> Report:
    data = Buffer(np.zeros(WORDS, np.uint32), written=False)
    values = np.arange(WORDS, dtype=np.uint32) + 1
    args: list[Argument] = [data, Buffer(values, writable=False), WORDS]
    if entry == "tensor_map":
        box = TensorMap("lhs", "uint32", (8, 8), (32,), (8, 8), (1, 1), swizzle_bytes=32)
        args.append(bytes(128) if broken else TensorMapArgument(box, values))
    cluster = (2, 1, 1) if entry == "cluster_exit" else (1, 1, 1)
    return run(
        module(target, broken), entry, grid=cluster, cluster=cluster, shared_bytes=4096,
        block=(THREADS.get(entry, 64), 1, 1), args=args, mode=mode, max_steps=10000,
    )  # fmt: skip


def test_every_kind_of_the_interpreter_has_a_kernel() -> None:
    found = re.findall(r"// FAULT (\w+)", SOURCE)
    assert sorted(found) == sorted(kind.replace("-", "_") for kind in KINDS)


@pytest.mark.parametrize(("entry", "target"), PRESENT)
def test_a_broken_kernel_is_reported_as_its_kind_at_its_line(entry: str, target: str) -> None:
    reports = [execute(entry, target, mode, broken=True) for mode in ADVERSARIAL_MODES]
    places = {
        (h.kind, h.line, pathlib.Path(h.file).name) for report in reports for h in report.hazards
    }
    wanted = entry.replace("_", "-")
    assert (wanted, marked_line(entry), "kernel.cu") in places, sorted(places)


@pytest.mark.parametrize(("entry", "target"), PRESENT)
def test_its_right_twin_is_silent_in_every_mode(entry: str, target: str) -> None:
    for mode in ADVERSARIAL_MODES:
        report = execute(entry, target, mode, broken=False)
        assert not report.hazards, [h.text for h in report.hazards]


@pytest.mark.parametrize("entry", sorted(NEEDS_SM_90A))
def test_what_sm_80_lacks_is_in_no_kernel_of_it(entry: str) -> None:
    assert entry not in module("sm_80", True).entries
