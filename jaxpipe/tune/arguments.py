"""The command line of tuning: arguments that all scripts share, and the study that they start.

In: parsed arguments and a problem. Out: a Tuning. tuning/tune_*.py and `python -m jaxpipe tune`
are this code.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import jax
import optuna
from optuna.samplers import BaseSampler

from jaxpipe import command_line, residual, settings, tuned
from jaxpipe.dtypes import OPERAND_DTYPES
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import TuningError
from jaxpipe.keys import EPILOGUE_WORDS, epilogue_fields
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.target import DEVICES, Device, HostDevice, device, device_by_model, host_device
from jaxpipe.tune.crew import LocalCrew
from jaxpipe.tune.job import Crew, Executor
from jaxpipe.tune.ledger import Ledger, default_path
from jaxpipe.tune.methods import METHODS
from jaxpipe.tune.problem_space import ProblemSpace, problem_space
from jaxpipe.tune.progress import Progress
from jaxpipe.tune.sampler import PriorSampler
from jaxpipe.tune.study import Budget, Study, Tuning
from jaxpipe.tune.workers import TableCrew


def add_study_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every tuning script: budget, sampler, device, where things are kept."""
    group = parser.add_argument_group("study")
    group.add_argument(
        "--trials",
        type=command_line.count,
        default=50,
        help="trials in all, those of earlier runs included (default 50)",
    )
    group.add_argument(
        "--seconds",
        type=command_line.seconds,
        default=0.0,
        help="stop after so many seconds (default: no limit)",
    )
    group.add_argument(
        "--sampler",
        choices=sorted(METHODS),
        default="prior",
        help="; ".join(f"{m.name}: {m.about}" for m in METHODS.values()),
    )
    group.add_argument(
        "--n-startup",
        type=command_line.natural,
        default=4,
        help="trials before the surrogate (sampler prior)",
    )
    group.add_argument(
        "--hand-off",
        type=command_line.natural,
        default=10,
        help="trials from which the model has only every other say (sampler prior)",
    )
    group.add_argument(
        "--promise",
        type=float,
        default=0.0,
        help="stop when the expected gain stays below this share, e.g. 0.005 (default: never)",
    )
    group.add_argument(
        "--seed", type=command_line.natural, default=0, help="same seed, same proposals"
    )
    group.add_argument(
        "--no-seeds", action="store_true", help="do not try winners of nearby problems first"
    )
    group.add_argument(
        "--no-residual",
        action="store_true",
        help="do not correct the model by what earlier measurements taught",
    )
    group.add_argument(
        "--timeout",
        type=command_line.seconds,
        default=120.0,
        help="seconds after which a measurement counts as hung",
    )
    where = parser.add_argument_group("device and files")
    where.add_argument(
        "--executor", choices=("host", "cuda"), help="default: cuda where JAX sees a GPU, else host"
    )
    where.add_argument(
        "--device", choices=sorted(DEVICES), help="GPU model; default: the one that JAX sees"
    )
    where.add_argument(
        "--jobs",
        type=command_line.count,
        help="processes that compile ahead (cuda; default JAXPIPE_COMPILE_JOBS)",
    )
    where.add_argument(
        "--storage",
        default="",
        help="Optuna storage: tuning.log (journal), sqlite:///PATH, postgresql://...; default: memory",
    )
    where.add_argument(
        "--workers",
        action="store_true",
        help="measure by tuning/worker.py processes on --storage instead of here",
    )
    where.add_argument(
        "--table", type=pathlib.Path, help="tuned file that gets the winner (default: the user's)"
    )
    where.add_argument(
        "--ledger", type=pathlib.Path, help="file of all measurements (default: the user's)"
    )
    where.add_argument("--quiet", action="store_true", help="no progress line")


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that products and convolutions share."""
    parser.add_argument(
        "--dtype",
        choices=OPERAND_DTYPES,
        default="float32",
        help="of the operands (default float32)",
    )
    parser.add_argument("--out-dtype", default="", help="of the result (default: the dtype's own)")
    parser.add_argument(
        "--precision", choices=("float32", "tf32"), default="float32", help="of float32 products"
    )
    parser.add_argument(
        "--epilogue",
        default="",
        metavar="WORDS",
        help="joined by +, of: " + ", ".join(EPILOGUE_WORDS) + ", alpha=NUMBER",
    )


def matmul_of(args: argparse.Namespace) -> Matmul:
    """The product that `tune_matmul` is asked for."""
    return Matmul(
        args.m,
        args.n,
        args.k,
        tuple(args.batch),
        lhs=Layout(args.layout[0] == "t"),
        rhs=Layout(args.layout[1] == "t"),
        **_common(args),
    )


def conv_of(args: argparse.Namespace) -> Conv2d:
    """The convolution that `tune_conv` is asked for."""
    top, bottom, left, right = _spread("padding", args.padding, 4)
    return Conv2d(
        args.batch,
        args.height,
        args.width,
        args.in_channels,
        args.out_channels,
        _pair("kernel", args.kernel),
        _pair("stride", args.stride),
        ((top, bottom), (left, right)),
        _pair("dilation", args.dilation),
        **_common(args),
    )


def _pair(name: str, given: list[int]) -> tuple[int, int]:
    first, second = _spread(name, given, 2)
    return first, second


def _spread(name: str, given: list[int], wanted: int) -> list[int]:
    """One number for all, or each; TuningError for any other count."""
    if len(given) not in (1, wanted):
        raise TuningError(f"--{name} takes 1 or {wanted} numbers, got {len(given)}: {given}")
    return given if len(given) == wanted else given * wanted


def _common(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "dtype": args.dtype,
        "out_dtype": args.out_dtype,
        "precision": args.precision,
        "epilogue": epilogue_of(args.epilogue),
    }


def epilogue_of(text: str) -> Epilogue:
    """The epilogue in words such as `bias+gelu_tanh`; TuningError names a word it does not know."""
    try:
        fields = epilogue_fields(text)
    except (KeyError, ValueError) as error:
        raise TuningError(
            f"epilogue {text!r}: {error} is no word, use {', '.join(EPILOGUE_WORDS)}, alpha=NUMBER"
        ) from error
    return Epilogue(**fields)


def target_of(args: argparse.Namespace) -> tuple[Executor, Device | HostDevice]:
    """Executor and device, by argument or by what JAX sees."""
    seen = jax.devices()[0]
    executor: Executor = args.executor or ("cuda" if seen.platform == "gpu" else "host")
    if executor == "host":
        return executor, host_device()
    found = device(args.device) if args.device else device_by_model(seen.device_kind)
    if found is None:
        raise TuningError(
            f"no device row matches {seen.device_kind!r} ({seen.platform}): name one with --device, of "
            f"{', '.join(DEVICES)}"
        )
    return executor, found


def sampler_of(args: argparse.Namespace, space: ProblemSpace) -> BaseSampler:
    """The sampler by name; TuningError when the list has not what it needs."""
    method = METHODS[args.sampler]
    if not method.serves(space.candidates):
        raise TuningError(
            f"sampler {args.sampler} needs the {method.order} prediction, which {space.target.name} "
            "has not: use prior, gp, random or optuna_tpe"
        )
    if args.sampler == "prior":
        return PriorSampler(
            space.candidates,
            seed=args.seed,
            n_startup=args.n_startup,
            hand_off=args.hand_off,
            promise=args.promise,
        )
    return method.make(space.candidates, args.seed)


def study_of(problem: Problem, args: argparse.Namespace, crew: Crew | None = None) -> Study:
    """The study that `args` describe for `problem`, with a crew on this machine by default."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    executor, target = target_of(args)
    learnt = None if args.no_residual else residual.shipped(executor)
    space = problem_space(problem, target, learnt)
    jobs = args.jobs or settings.whole("JAXPIPE_COMPILE_JOBS")
    if crew is None and args.workers:
        crew = TableCrew(args.storage, f"{executor} {target.name} {problem.key}", target.name)
    return Study(
        space,
        executor,
        crew or LocalCrew(jobs if executor == "cuda" else 0),
        sampler_of(args, space),
        Ledger(args.ledger or default_path(target.name)),
        args.table or tuned.user_path(target.name),
        arch=target.arch if isinstance(target, Device) else "",
        storage=args.storage,
        seeds=not args.no_seeds,
        timeout_s=args.timeout,
        progress=None if args.quiet else Progress(args.trials, args.seconds),
    )


def tune(problem: Problem, args: argparse.Namespace) -> Tuning:
    """Tune `problem` as `args` say and print how it ended."""
    study = study_of(problem, args)
    try:
        if study.progress is not None:
            study.progress.say(
                f"{problem} on {study.space.target.name}: {len(study.space)} schedules"
            )
        tuning = study.run(Budget(args.trials, args.seconds))
    finally:
        study.crew.close()
    if study.progress is not None:
        study.progress.say("")
    print(tuning)
    return tuning
