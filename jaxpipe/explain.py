"""`python -m jaxpipe explain ...` and `jaxpipe.explain(fn, *args)`: why a kernel takes its time.

In: a problem on the command line, or a JAX function with example arguments. Out: text, or reports.
Nothing is compiled or run; the figures are the models' (`jaxpipe/model`), not measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import jax

from jaxpipe import command_line
from jaxpipe.dtypes import OPERAND_DTYPES
from jaxpipe.epilogue import ACTIVATIONS, BiasKind, Epilogue
from jaxpipe.errors import ProblemError, UnsupportedError
from jaxpipe.explain_plot import plot
from jaxpipe.explain_report import Report, lines, report
from jaxpipe.ops.compat import JAXPR_TYPES, conv_general_dilated_p, dot_general_p
from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.epilogue import Fusion
from jaxpipe.ops.options import Options
from jaxpipe.ops.plan import Abilities
from jaxpipe.ops.specs import Spec
from jaxpipe.problem import Conv2d, Layout, Matmul, Precision, Problem
from jaxpipe.schedule import GpuSchedule, HostSchedule
from jaxpipe.target import DEVICES, Device, HostDevice, device, host_device

HOST = "host"
MATMUL_ONLY: dict[str, object] = {"batch": [], "layout": "nn"}
CONV_ONLY: dict[str, object] = {"stride": 1, "padding": 0}


def explain(fn: Callable[..., Any], *args: Any, target: str = HOST, **kwargs: Any) -> str:
    """The reports of every product and convolution of `fn(*args, **kwargs)`, as one text.

    target: "host" or the short name of a GPU (`a100`). Arguments may be ShapeDtypeStructs; `fn` is
    traced, not run. A product that no kernel serves is named with the reason.
    """
    where = _target(target)
    found = sites(fn, args, kwargs)
    texts = [_site_text(spec, fusion, avals, where) for spec, fusion, avals in found]
    return "\n\n".join(texts) if texts else "no products and no convolutions"


def sites(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[Spec, Fusion, tuple[Any, ...]]]:
    """Every product and convolution of the traced function: spec, fused epilogue, operand types."""
    closed = jax.make_jaxpr(lambda a, k: fn(*a, **k))(args, kwargs)
    return list(_walk(closed.jaxpr))


def _walk(jaxpr: Any) -> Iterator[tuple[Spec, Fusion, tuple[Any, ...]]]:
    for eqn in jaxpr.eqns:
        avals = tuple(v.aval for v in eqn.invars)
        params = eqn.params
        if eqn.primitive is dot_general_p:
            spec = DotSpec(
                params["dimension_numbers"], params["precision"], params["preferred_element_type"]
            )
            yield spec, Fusion(), avals
        elif eqn.primitive is conv_general_dilated_p:
            yield ConvSpec.of(params, Options()), Fusion(), avals
        elif isinstance(params.get("spec"), DotSpec | ConvSpec):
            yield params["spec"], params.get("fusion", Fusion()), avals
        else:
            for inner in _inner(params.values()):
                yield from _walk(inner)


def _inner(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, JAXPR_TYPES):
            yield getattr(value, "jaxpr", value)
        elif isinstance(value, tuple | list):
            yield from _inner(value)


def _site_text(
    spec: Spec, fusion: Fusion, avals: tuple[Any, ...], where: Device | HostDevice
) -> str:
    lhs, rhs, *rest = avals
    able = Abilities(has_tf32=isinstance(where, Device), has_patches=isinstance(where, HostDevice))
    try:
        problem = spec.plan(fusion, lhs, rhs, rest[0] if rest else None, able).problem
        return "\n".join(lines(report(problem, where)))
    except UnsupportedError as error:
        return f"{spec.op} {lhs.str_short()} x {rhs.str_short()} goes to XLA: {error}"


# ---------------------------------------------------------------------- command line
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A problem, what it is computed on, and where the drawing goes."""
    add_problem_arguments(parser)
    parser.add_argument("--target", default="h200", help=f"{HOST}, {', '.join(DEVICES)}")
    parser.add_argument("--schedule", default="", help="field=value,... over the chosen one")
    parser.add_argument("--plot", default="", metavar="FILE.png", help="draw timeline and roofline")


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """`matmul M N K` or `conv N H W C OUT KH KW` (also `conv2d`), and what they compute in."""
    parser.add_argument("op", choices=("matmul", "conv2d", "conv"))
    parser.add_argument(
        "sizes", type=command_line.natural, nargs="+", help="m n k | n h w c out kh kw"
    )
    parser.add_argument(
        "--batch", type=command_line.natural, nargs="*", default=[], help="batch sizes of a matmul"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=OPERAND_DTYPES)
    parser.add_argument("--out-dtype", default="", help="default: the operands'")
    parser.add_argument("--layout", default="nn", choices=("nn", "nt", "tn", "tt"))
    parser.add_argument("--precision", default="float32", choices=get_args(Precision))
    parser.add_argument("--bias", default="none", choices=get_args(BiasKind))
    parser.add_argument("--activation", default="none", choices=ACTIVATIONS)
    parser.add_argument("--residual", action="store_true")
    parser.add_argument(
        "--residual-first", action="store_true", help="a residual, added before the activation"
    )
    parser.add_argument(
        "--stride", type=command_line.count, default=1, help="of a conv2d, both ways"
    )
    parser.add_argument(
        "--padding", type=command_line.natural, default=0, help="of a conv2d, every side"
    )


def run(args: argparse.Namespace) -> int:
    """Print the report; draw it when asked."""
    found = _report(args)
    print("\n".join(lines(found)))
    if args.plot:
        plot(found, args.plot)
        print(f"\nwrote {args.plot}")
    return 0


def _report(args: argparse.Namespace) -> Report:
    problem, where = problem_of(args), _target(args.target)
    if problem.is_empty or problem.k == 0:
        raise ProblemError(f"{problem} computes nothing: there is no kernel to explain")
    found = report(problem, where)
    if not args.schedule:
        return found
    base = found.choice.schedule
    if isinstance(base, HostSchedule):
        return report(problem, where, HostSchedule.parse(args.schedule, base))
    return report(problem, where, GpuSchedule.parse(args.schedule, base))


def problem_of(args: argparse.Namespace) -> Problem:
    """The problem that the command line names; ProblemError when sizes are missing."""
    wanted = {"matmul": 3, "conv2d": 7, "conv": 7}[args.op]
    if len(args.sizes) != wanted:
        raise ProblemError(
            f"{args.op} takes {wanted} sizes, got {len(args.sizes)}: "
            f"{'m n k' if args.op == 'matmul' else 'n h w c out kh kw'}"
        )
    _refuse_idle(args)
    problem = _matmul(args) if args.op == "matmul" else _conv2d(args)
    epilogue = Epilogue(
        bias=args.bias, activation=args.activation, residual=args.residual or args.residual_first,
        residual_first=args.residual_first,
    )  # fmt: skip
    return replace(
        problem, dtype=args.dtype, out_dtype=args.out_dtype, precision=args.precision,
        epilogue=epilogue,
    )  # fmt: skip


def _refuse_idle(args: argparse.Namespace) -> None:
    """Raise ProblemError for arguments that say nothing of this kind of problem."""
    idle = CONV_ONLY if args.op == "matmul" else MATMUL_ONLY
    if given := [f"--{name}" for name, default in idle.items() if getattr(args, name) != default]:
        raise ProblemError(f"{args.op} takes no {' and no '.join(given)}: leave it away")


def _matmul(args: argparse.Namespace) -> Problem:
    m, n, k = args.sizes
    lhs, rhs = (Layout(transposed=letter == "t") for letter in args.layout)
    return Matmul(m, n, k, batch=tuple(args.batch), lhs=lhs, rhs=rhs)


def _conv2d(args: argparse.Namespace) -> Problem:
    batch, height, width, channels, out, kh, kw = args.sizes
    side = (args.padding, args.padding)
    stride = (args.stride, args.stride)
    return Conv2d(batch, height, width, channels, out, (kh, kw), stride, padding=(side, side))


def _target(name: str) -> Device | HostDevice:
    return host_device() if name == HOST else device(name)
