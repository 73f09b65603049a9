"""`python -m jaxpipe COMMAND`: one table of commands, each in a module of its own.

A command module has `add_arguments(parser)` and `run(args) -> int` (the exit code). It is imported
only when it is asked for, so that `doctor` works where the tuner's libraries are missing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from jaxpipe.errors import JaxpipeError
from jaxpipe.version import VERSION


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command: the module that serves it and the line that `--help` shows."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("emit", "jaxpipe.cli_emit", "write every stage of a kernel: IR, CUDA, PTX, resources"),
    Command(
        "explain", "jaxpipe.explain", "what bounds a kernel, and why its buffers are pipelined"
    ),
    Command("check", "jaxpipe.cli_check", "run a kernel's PTX on the CPU and report every hazard"),
    Command("tune", "jaxpipe.cli_tune", "tune the schedule of a product or convolution"),
    Command("doctor", "jaxpipe.doctor", "what works on this machine, and why the rest does not"),
)
USAGE_ERROR, FAULT = 2, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's); returns the exit code.

    A JaxpipeError is printed as one line on standard error and exits with 1.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked = arguments[0] if arguments else ""
    parser = argparse.ArgumentParser(prog="jaxpipe", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"jaxpipe {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for row in COMMANDS:
        command = commands.add_parser(row.name, help=row.summary, description=row.summary)
        if row.name == asked:
            module = importlib.import_module(row.module)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except JaxpipeError as error:
        print(f"jaxpipe {args.command}: {error}", file=sys.stderr)
        return FAULT
