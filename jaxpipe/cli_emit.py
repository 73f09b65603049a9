"""`python -m jaxpipe emit ...`: every stage of a kernel, from the nest to the cubin's resources.

In: a problem on the command line, a target, perhaps a schedule. Out: the CUDA source on standard
output, or with --dump a directory with one file a stage. No GPU is needed.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Iterator

from jaxpipe import compiler
from jaxpipe.choose import choose
from jaxpipe.errors import TargetError
from jaxpipe.explain import add_problem_arguments, problem_of
from jaxpipe.ir.printer import to_text
from jaxpipe.kernel import CompiledKernel, Kernel
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import ARCHES, DEVICES, Arch, Device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A problem, its target and schedule, and where the stages go."""
    add_problem_arguments(parser)
    parser.add_argument("--target", default="a100", help=f"{', '.join((*DEVICES, *ARCHES))}")
    parser.add_argument("--schedule", default="", help="field=value,... over the chosen one")
    parser.add_argument("--dump", metavar="DIR", help="write every stage and compile")


def run(args: argparse.Namespace) -> int:
    """Print the source, or write every stage."""
    problem = problem_of(args)
    schedule, arch = schedule_of(args, problem)
    kernel = compiler.emit_kernel(problem, schedule, arch)
    if args.dump is None:
        print(kernel.source, end="")
        return 0
    directory = pathlib.Path(args.dump)
    directory.mkdir(parents=True, exist_ok=True)
    compiled = compiler.compile_kernel(problem, schedule, arch)
    for name, data in files(problem, schedule, arch, kernel, compiled):
        (directory / name).write_bytes(data)
        print(directory / name)
    print(_resources(compiled), end="")
    return 0


def schedule_of(args: argparse.Namespace, problem: Problem) -> tuple[GpuSchedule, Arch]:
    """The schedule that --schedule asks for over the chosen one, and the target's architecture."""
    base = _base(problem, _device(args.target))
    return GpuSchedule.parse(args.schedule, base), _arch(args.target)


def files(
    problem: Problem, schedule: GpuSchedule, arch: Arch, kernel: Kernel, compiled: CompiledKernel
) -> Iterator[tuple[str, bytes]]:
    """Name and content of every stage, in order."""
    number = 0
    for launch in compiler.lower(problem, schedule, arch):
        for name, func in launch.stages:
            yield f"{number:02d}_{func.name}_{name}.ir", to_text(func).encode()
            number += 1
    found = compiler.verdicts(problem, schedule, arch)
    yield f"{number:02d}_verdicts.txt", "".join(f"{v}\n" for v in found).encode()
    yield f"{number + 1:02d}_{kernel.name}.cu", kernel.source.encode()
    yield f"{number + 2:02d}_{kernel.name}.ptx", compiled.ptx.encode()
    yield f"{number + 3:02d}_{kernel.name}.cubin", compiled.cubin
    yield f"{number + 4:02d}_resources.txt", _resources(compiled).encode()


def _resources(compiled: CompiledKernel) -> str:
    lines = [f"{compiled.compiler}, key {compiled.key}"]
    shared = {launch.entry: launch.shared_bytes for launch in compiled.kernel.launches}
    for r in compiled.resources:
        spills = r.spill_store_bytes + r.spill_load_bytes
        lines.append(
            f"{r.entry}: {r.registers} registers, {spills} bytes spilled, "
            f"{r.shared_bytes + shared.get(r.entry, 0)} bytes shared"
        )
        lines += [f"  {d}" for d in r.diagnostics]
    for launch in compiled.kernel.launches:
        lines.append(f"launch {launch.entry}: grid {launch.grid}, block {launch.block}")
    return "\n".join(lines) + "\n"


def _arch(target: str) -> Arch:
    known = target in DEVICES or target in ARCHES
    if not known:
        raise TargetError(
            f"unknown target {target!r}: devices are {', '.join(DEVICES)}, "
            f"architectures {', '.join(ARCHES)}"
        )
    return compiler.target_arch(target)


def _device(target: str) -> Device:
    """The device of that name, or the first of an architecture."""
    arch = _arch(target)
    if target in DEVICES:
        return DEVICES[target]
    same = (d for d in DEVICES.values() if d.arch.removesuffix("a") == arch.name.removesuffix("a"))
    return next(same, DEVICES["a100"])


def _base(problem: Problem, device: Device) -> GpuSchedule:
    if problem.is_empty or problem.k == 0:  # no product to choose anything for
        return GpuSchedule()
    found = choose(problem, executor="cuda", device=device).schedule
    assert isinstance(found, GpuSchedule), f"{found} for executor cuda"
    return found
