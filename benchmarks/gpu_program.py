#!/usr/bin/env python3
"""What a GPU would run for a model, counted without one: kernels, bytes, memory, CUDA graphs.

    python benchmarks/gpu_program.py bert --model bert-base --dtype bfloat16 --target h200
    python benchmarks/gpu_program.py gpt2 --target a100 --json rows.jsonl

Compiles the model three times with XLA:GPU for a GPU that is not there: as XLA does it, as XLA does
it with every product left to cuBLAS, and with jaxpipe. Counts, by class, the kernels that are
launched and the bytes that must pass through device memory. Nothing here is a time: `floor` is the
bytes at the device's full bandwidth. XLA picks tiles and libraries by measuring, which it cannot do
here, so of its products only the operands and results count, not their speed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

import jaxpipe  # noqa: E402
from benchmarks import gpu_compile, hlo  # noqa: E402
from benchmarks.compare_xla import CASES  # noqa: E402
from benchmarks.comparison import Case, versions  # noqa: E402
from jaxpipe import target as targets  # noqa: E402

DEVICES = {"h200": "h200", "a100": "a100_80gb"}


@dataclass(frozen=True)
class Count:
    """Kernels of one class, and the bytes that they read and write."""

    kernels: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def plus(self, kernel: hlo.Kernel) -> Count:
        """With one more row of kernels."""
        n = kernel.launches
        return Count(
            self.kernels + n,
            self.read_bytes + n * kernel.read_bytes,
            self.written_bytes + n * kernel.written_bytes,
        )


@dataclass(frozen=True)
class Report:
    """One side of one model on one target."""

    model: str
    dtype: str
    target: str
    side: str
    classes: Mapping[str, Count]
    ours: int
    temp_bytes: int
    command_buffers: int
    commands: int
    commands_outside: int

    @property
    def total(self) -> Count:
        """All classes together."""
        rows = self.classes.values()
        return Count(
            sum(r.kernels for r in rows),
            sum(r.read_bytes for r in rows),
            sum(r.written_bytes for r in rows),
        )

    @property
    def floor_s(self) -> float:
        """Bytes over the device's bandwidth: no run of this program is faster."""
        device = targets.device(DEVICES[self.target])
        return (self.total.read_bytes + self.total.written_bytes) / device.dram_bps

    def to_json(self) -> str:
        """One line."""
        row = {
            "kind": "gpu_program",
            "device": f"none: compiled for {self.target}",
            **dataclasses.asdict(self),
            "floor_s": self.floor_s,
            "versions": versions(),
            "command": " ".join(["python", "benchmarks/gpu_program.py", *sys.argv[1:]]),
        }
        return json.dumps(row, sort_keys=True)


def count(program: gpu_compile.Program, case: Case, target: str, side: str) -> Report:
    """The report of a compiled program."""
    classes = {name: Count() for name in hlo.CLASSES}
    ours = 0
    for kernel in hlo.kernels(hlo.parse(program.text)):
        classes[kernel.kind] = classes[kernel.kind].plus(kernel)
        ours += kernel.launches if kernel.target == hlo.OURS else 0
    return Report(
        model=case.name,
        dtype=case.dtype,
        target=target,
        side=side,
        classes=classes,
        ours=ours,
        temp_bytes=program.temp_bytes,
        command_buffers=len(program.command_buffers),
        commands=sum(len(b.kinds) for b in program.command_buffers),
        commands_outside=len(program.loose),
    )


def programs(case: Case, target: str) -> dict[str, gpu_compile.Program]:
    """The three programs of `case`, by side."""

    def ours(*arguments: Any) -> Any:
        with jaxpipe.options(implementation=case.implementation):
            return case.ours(*arguments)

    build, arguments = gpu_compile.compile_for, _in_dtype(case)
    return {
        "xla": build(target, case.xla, *arguments),
        "xla, cuBLAS": build(target, case.xla, *arguments, options=gpu_compile.CUBLAS_ONLY),
        "jaxpipe": build(target, ours, *arguments),
    }


def _in_dtype(case: Case) -> Any:
    """Shapes of the case's arguments with floats in its dtype: weights as inference keeps them."""

    def convert(a: Any) -> jax.ShapeDtypeStruct:
        is_float = jax.numpy.issubdtype(a.dtype, jax.numpy.floating)
        return jax.ShapeDtypeStruct(a.shape, jax.numpy.dtype(case.dtype) if is_float else a.dtype)

    return jax.tree.map(convert, case.arguments)


def table(reports: Sequence[Report]) -> str:
    """The reports of one model side by side, one row a class."""
    rows = [["", *(r.side for r in reports)]]
    for name in hlo.CLASSES:
        rows.append([name, *(_cell(r.classes[name]) for r in reports)])
    rows.append(["all", *(_cell(r.total) for r in reports)])
    rows.append(["of these jaxpipe's", *(str(r.ours) for r in reports)])
    rows.append(["floor at full bandwidth", *(f"{r.floor_s * 1e6:.0f} us" for r in reports)])
    rows.append(["temporary memory", *(f"{r.temp_bytes / 1e6:.1f} MB" for r in reports)])
    rows.append(["CUDA graphs: commands", *(f"{r.command_buffers}: {r.commands}" for r in reports)])
    rows.append(["outside of graphs", *(str(r.commands_outside) for r in reports)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"{reports[0].model} for {reports[0].target}", *lines])


def _cell(c: Count) -> str:
    return f"{c.kernels:4d} kernels {c.read_bytes / 1e6:8.1f} + {c.written_bytes / 1e6:7.1f} MB"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("case", choices=sorted(CASES), help="which model")
    p.add_argument("--target", choices=sorted(DEVICES), default="h200")
    p.add_argument("--model", help="size with random weights, or a Hugging Face folder")
    p.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="bfloat16")
    p.add_argument("--batch", type=int, help="rows of the batch")
    p.add_argument("--size", type=int, help="tokens a row, or pixels a side")
    p.add_argument("--implementation", choices=("cuda", "xla"), help="force one")
    p.add_argument("--json", type=pathlib.Path, help="append one JSON row a side to this file")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 when jaxpipe's side launches none of its kernels."""
    args = parser().parse_args(argv)
    row = CASES[args.case]
    model, batch, size = args.model or row.model, args.batch or row.batch, args.size or row.size
    case = row.build(model, args.dtype, batch, size, args.implementation)
    reports = [
        count(program, case, args.target, side)
        for side, program in programs(case, args.target).items()
    ]
    print(table(reports))
    if args.json:
        with args.json.open("a") as file:
            file.writelines(report.to_json() + "\n" for report in reports)
    return 0 if reports[-1].ours or args.implementation == "xla" else 1


if __name__ == "__main__":
    sys.exit(main())
