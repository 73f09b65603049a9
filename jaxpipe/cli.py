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
from types import ModuleType

from jaxpipe.command_line import told
from jaxpipe.errors import UnsupportedError
from jaxpipe.version import VERSION


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command: the module that serves it, the line that `--help` shows, and the extra of
    the package that holds what it imports."""

    name: str
    module: str
    summary: str
    extra: str = ""


COMMANDS = (
    Command("emit", "jaxpipe.cli_emit", "write every stage of a kernel: IR, CUDA, PTX, resources"),
    Command(
        "explain", "jaxpipe.explain", "what bounds a kernel, and why its buffers are pipelined"
    ),
    Command("check", "jaxpipe.cli_check", "run a kernel's PTX on the CPU and report every hazard"),
    Command("tune", "jaxpipe.cli_tune", "tune the schedule of a product or convolution", "tune"),
    Command("doctor", "jaxpipe.doctor", "what works on this machine, and why the rest does not"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's); returns the exit code.

    Faults that a user can cause are printed as one line on standard error and exit with 1.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    asked = arguments[0] if arguments else ""
    return told(f"jaxpipe {asked}", lambda: _run(arguments, asked))


def _run(arguments: list[str], asked: str) -> int:
    args = _parser(asked).parse_args(arguments)
    return int(args.run(args))


def _parser(asked: str) -> argparse.ArgumentParser:
    """The whole command line, with the arguments of the command that is asked for."""
    parser = argparse.ArgumentParser(prog="jaxpipe", description="Kernels for JAX, looked into.")
    parser.add_argument("--version", action="version", version=f"jaxpipe {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for row in COMMANDS:
        command = commands.add_parser(row.name, help=row.summary, description=row.summary)
        if row.name == asked:
            module = _module(row)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _module(row: Command) -> ModuleType:
    """The module of a command; UnsupportedError when what its extra installs is missing."""
    try:
        return importlib.import_module(row.module)
    except ModuleNotFoundError as error:
        if not row.extra or str(error.name).startswith("jaxpipe"):
            raise
        raise UnsupportedError(
            f"needs {error.name}, which is not installed: pip install 'jaxpipe[{row.extra}]'"
        ) from None
