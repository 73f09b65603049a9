"""`python -m jaxpipe tune`: matmul, conv, export, import. The scripts of tuning/ are this code."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable

from jaxpipe import command_line, tuned
from jaxpipe.errors import RecordError
from jaxpipe.tune import exchange
from jaxpipe.tune.arguments import (
    add_problem_arguments,
    add_study_arguments,
    conv_of,
    matmul_of,
    tune,
)
from jaxpipe.tune.ledger import Ledger


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `tune`."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT")
    add_matmul_arguments(kinds.add_parser("matmul", help="one matrix product"))
    add_conv_arguments(kinds.add_parser("conv", help="one 2-D convolution"))
    add_export_arguments(
        kinds.add_parser("export", help="a ledger as Kernel Tuner T4, or winners as one table")
    )
    add_import_arguments(
        kinds.add_parser("import", help="merge tuned files or T4 results into the user's files")
    )


def run(args: argparse.Namespace) -> int:
    """Serve the sub-command."""
    if args.kind == "export":
        return run_export(args)
    return run_import(args) if args.kind == "import" else run_tuning(args)


def add_matmul_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of one product."""
    parser.set_defaults(kind="matmul")
    for name, about in (("m", "rows of the result"), ("n", "columns"), ("k", "terms of each sum")):
        parser.add_argument(name, type=command_line.natural, help=about)
    parser.add_argument(
        "--batch", type=command_line.natural, nargs="*", default=[], help="up to two batch sizes"
    )
    parser.add_argument(
        "--layout",
        choices=("nn", "nt", "tn", "tt"),
        default="nn",
        help="t: that operand is stored transposed",
    )
    add_problem_arguments(parser)
    add_study_arguments(parser)


def add_conv_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of one convolution."""
    parser.set_defaults(kind="conv")
    for name in ("batch", "height", "width", "in_channels", "out_channels"):
        parser.add_argument(name, type=command_line.natural)
    parser.add_argument(
        "--kernel",
        type=command_line.count,
        nargs="+",
        default=[3],
        help="filter height and width (one number: square)",
    )
    parser.add_argument("--stride", type=command_line.count, nargs="+", default=[1])
    parser.add_argument("--dilation", type=command_line.count, nargs="+", default=[1])
    parser.add_argument(
        "--padding",
        type=command_line.natural,
        nargs="+",
        default=[0],
        help="one number, or top bottom left right",
    )
    add_problem_arguments(parser)
    add_study_arguments(parser)


def run_tuning(args: argparse.Namespace) -> int:
    """Tune what `add_matmul_arguments` or `add_conv_arguments` parsed."""
    tune(conv_of(args) if args.kind == "conv" else matmul_of(args), args)
    return 0


def run_script(about: str, add: Callable[[argparse.ArgumentParser], None]) -> int:
    """The whole of a tuning script: parse by `add`, tune, print; 1 on a fault that a user can cause."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add(parser)
    name = pathlib.Path(sys.argv[0]).stem
    return command_line.told(name, lambda: run_tuning(parser.parse_args()))


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of export."""
    parser.add_argument(
        "source", type=pathlib.Path, nargs="+", help="ledgers (.jsonl) or tuned files (.json)"
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="file to write")
    parser.add_argument(
        "--format",
        choices=("t4", "table"),
        default="table",
        help="t4: every measurement, for Kernel Tuner's tools; table: the winners",
    )


def run_export(args: argparse.Namespace) -> int:
    """Write T4 results or a merged table; RecordError for a source that is not there."""
    if missing := [str(path) for path in args.source if not path.is_file()]:
        raise RecordError(f"no file {', '.join(missing)}: name ledgers (.jsonl) or tuned files")
    if args.format == "t4":
        records = [r for path in args.source for r in Ledger(path).read()]
        args.out.write_text(exchange.to_t4(records))
        print(f"{len(records)} measurements to {args.out}")
        return 0
    table = tuned.Table()
    for path in args.source:
        is_ledger = path.suffix == ".jsonl"
        table |= tuned.Table.of(Ledger(path).read()) if is_ledger else tuned.Table.load(path)
    written = tuned.update(args.out, table)
    print(f"{len(written)} winners in {args.out}")
    return 0


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of import."""
    parser.add_argument(
        "source",
        type=pathlib.Path,
        nargs="+",
        help="tuned files, or T4 results that jaxpipe exported",
    )
    parser.add_argument(
        "--table",
        type=pathlib.Path,
        help="tuned file to merge into (default: the user's, by device)",
    )


def run_import(args: argparse.Namespace) -> int:
    """Merge into the user's files, device by device."""
    merged = tuned.Table()
    for path in args.source:
        merged |= exchange.read_any(path)
    devices = sorted({record.device for record in merged.rows.values()})
    for device in devices:
        rows = {k: r for k, r in merged.rows.items() if r.device == device}
        target = args.table or tuned.user_path(device)
        written = tuned.update(target, tuned.Table(rows))
        print(f"{device}: {len(rows)} winners merged, {len(written)} now in {target}")
    return 0
