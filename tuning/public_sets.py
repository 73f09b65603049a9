"""Public measurements as replay sets: what to read, its candidates, true times and prior.

In: the gzip CSV files under recorded/public (sources and licences: the README there). Out:
`Replay`s for jaxpipe.tune. A row that failed is a candidate that fails when it is tried.
"""

from __future__ import annotations

import csv
import gzip
import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import public_priors as priors
from numpy.typing import NDArray

from jaxpipe.tune.candidates import Candidates
from jaxpipe.tune.replay import Replay

PUBLIC = pathlib.Path(__file__).parent / "recorded" / "public"
STATIC_FAILURES = ("instantiation_error", "compile_host")
"""What TVM refused before building: our lists hold only what passed such checks."""
Rows = list[dict[str, str]]
GEMM = ("MWG", "NWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB")
FILTER = (
    "block_size_x",
    "block_size_y",
    "tile_size_x",
    "tile_size_y",
    "read_only",
    "use_padding",
    "use_shmem",
)
WMMA = (
    "block_row_warps",
    "block_col_warps",
    "warp_row_tiles",
    "warp_col_tiles",
    "chunk",
    "offset",
    "offsetCS",
    "vec",
    "wmma_m",
)


@dataclass(frozen=True, slots=True)
class PublicSet:
    """One named set: `load` gives its replay, `chip` is the hardware, `about` the kernel."""

    name: str
    chip: str
    about: str
    load: Callable[[], Replay]


def _rows(stem: str, folder: pathlib.Path = PUBLIC) -> Rows:
    with gzip.open(folder / f"{stem}.csv.gz", "rt") as stream:
        return list(csv.DictReader(stream))


def _columns(rows: Rows, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    return {name: np.array([int(row[name]) for row in rows]) for name in names}


def _kernel_tuner(
    stem: str, chip: str, names: tuple[str, ...], prior: Callable[[Any, Any], NDArray[np.float64]]
) -> Replay:
    """A Kernel Tuner cache: median and spread of 32 timings a row."""
    rows = _rows(stem)
    columns = _columns(rows, names)
    seconds = np.array(
        [float(r["median_ms"]) / 1e3 if r["status"] == "ok" else math.nan for r in rows]
    )
    # Half the distance of the 10th and 90th percentile is 1.28 standard deviations.
    spread = [
        (float(r["p90_ms"]) - float(r["p10_ms"])) / 2.56 / float(r["median_ms"])
        if r["status"] == "ok"
        else 0.0
        for r in rows
    ]
    candidates = Candidates(columns, prior(columns, priors.CHIPS[chip]))
    return Replay(stem, candidates, seconds, np.array(spread))


def _tensor_core() -> Replay:
    """TVM WMMA dense on V100: two logs of one problem, averaged by configuration."""
    logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    rows = [r for r in _rows("autotvm_dense_tensorcore_fp16_V100") if r["status"] == "ok"]
    for row in rows:
        logs[tuple(row[name] for name in WMMA)].append(math.log(float(row["cost_ms"]) / 1e3))
    columns = {name: np.array([int(knobs[i]) for knobs in logs]) for i, name in enumerate(WMMA)}
    seconds = np.array([math.exp(sum(times) / len(times)) for times in logs.values()])
    prior = priors.tvm_wmma_dense(columns, priors.CHIPS["V100"])
    return Replay("tvm_wmma_V100", Candidates(columns, prior), seconds, np.full(len(seconds), 0.01))


def _splits(text: str, count: int) -> list[int]:
    parts = [int(part) for part in text.split("x")]
    return [1] * (count - len(parts)) + parts


def _autotvm(stem: str, args: str, splits: Mapping[str, int], plain: tuple[str, ...]) -> Replay:
    """One AutoTVM task: each split becomes one knob a factor; repeated trials are averaged."""
    logs: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for row in _rows(stem):
        if row["args"] != args or row["gpu"] != "V100" or row["status"] in STATIC_FAILURES:
            continue
        knobs = [f for name, count in splits.items() for f in _splits(row[name], count)]
        knobs += [int(row[name]) for name in plain]
        logs[tuple(knobs)] += (
            [math.log(float(row["cost_ms"]) / 1e3)] if row["status"] == "ok" else []
        )
    names = [f"{name}{i}" for name, count in splits.items() for i in range(count)] + list(plain)
    columns = {name: np.array([knobs[i] for knobs in logs]) for i, name in enumerate(names)}
    seconds = np.array([math.exp(sum(t) / len(t)) if t else math.nan for t in logs.values()])
    prior = _autotvm_prior(columns, args)
    return Replay(
        f"{stem} {args}", Candidates(columns, prior), seconds, np.full(len(seconds), 0.02)
    )


def _autotvm_prior(c: Mapping[str, NDArray[Any]], args: str) -> NDArray[np.float64] | None:
    """A prior for the product templates; convolutions run without one."""
    shapes = [[int(s) for s in part.split(":")[0].split("x")] for part in args.split("|")[:2]]
    if "tile_f0" in c:
        return None
    a, b = shapes
    batch = a[0] if len(a) == 3 else 1
    m, k = a[-2], a[-1]
    n = math.prod(b[-2:]) // k
    factors_y = [c[name] for name in sorted(c) if name.startswith("tile_y")]
    factors_x = [c[name] for name in sorted(c) if name.startswith("tile_x")]
    tile_y, tile_x = math.prod(factors_y), math.prod(factors_x)
    threads = factors_y[-2] * factors_x[-2]
    depth = math.prod(c[name] for name in c if name.startswith("tile_k"))
    # dense calls its rows x, batch_matmul calls them y.
    tile_m, tile_n = (tile_y, tile_x) if batch > 1 else (tile_x, tile_y)
    inner = tile_m * tile_n / threads
    return priors.tvm_simt_product(
        1.0 * threads, inner, tile_m, tile_n, 1.0 * depth, (batch, m, n, k)
    )


def tasks(stem: str, least: int = 400) -> Iterator[str]:
    """The V100 tasks of an AutoTVM file with at least `least` good trials."""
    counts: dict[str, int] = defaultdict(int)
    for row in _rows(stem):
        counts[row["args"]] += row["gpu"] == "V100" and row["status"] == "ok"
    return (args for args, count in sorted(counts.items()) if count >= least)


CONTRACT: tuple[PublicSet, ...] = (
    PublicSet(
        "gemm_3090",
        "RTX_3090",
        "CLBlast Xgemm float32 4096",
        lambda: _kernel_tuner(
            "kt_gemm_clblast_fp32_4096_RTX_3090", "RTX_3090", GEMM, priors.clblast_gemm
        ),
    ),
    PublicSet(
        "gemm_2080ti",
        "RTX_2080_Ti",
        "CLBlast Xgemm float32 4096",
        lambda: _kernel_tuner(
            "kt_gemm_clblast_fp32_4096_RTX_2080_Ti", "RTX_2080_Ti", GEMM, priors.clblast_gemm
        ),
    ),
    PublicSet("wmma_v100", "V100", "TVM WMMA dense fp16", _tensor_core),
    PublicSet(
        "filter_a100",
        "A100",
        "15x15 filter float32",
        lambda: _kernel_tuner("kt_conv2d15x15_4096_A100", "A100", FILTER, priors.filter_15x15),
    ),
)
HELD_OUT: tuple[PublicSet, ...] = (
    PublicSet(
        "gemm_3060",
        "RTX_3060_laptop",
        "CLBlast Xgemm float32 4096",
        lambda: _kernel_tuner(
            "kt_gemm_clblast_fp32_4096_RTX_3060_laptop",
            "RTX_3060_laptop",
            GEMM,
            priors.clblast_gemm,
        ),
    ),
    PublicSet(
        "filter_a4000",
        "A4000",
        "15x15 filter float32",
        lambda: _kernel_tuner("kt_conv2d15x15_4096_A4000", "A4000", FILTER, priors.filter_15x15),
    ),
    PublicSet(
        "filter_w6600",
        "W6600",
        "15x15 filter float32",
        lambda: _kernel_tuner("kt_conv2d15x15_4096_W6600", "W6600", FILTER, priors.filter_15x15),
    ),
)


def autotvm_sets(kind: str) -> tuple[PublicSet, ...]:
    """Every usable V100 task of "dense", "batch_matmul" or "conv2d" (AutoTVM search logs)."""
    stem, splits, plain = _TEMPLATES[kind]
    return tuple(
        PublicSet(
            f"{kind}_{i}", "V100", args, lambda args=args: _autotvm(stem, args, splits, plain)
        )  # type: ignore[misc]
        for i, args in enumerate(tasks(stem))
    )


_TEMPLATES: dict[str, tuple[str, dict[str, int], tuple[str, ...]]] = {
    "dense": ("autotvm_dense_fp32_V100_K80", {"tile_x": 3, "tile_y": 3, "tile_k": 2}, ()),
    "batch_matmul": (
        "autotvm_batch_matmul_fp32_V100",
        {"tile_y": 2, "tile_x": 2, "tile_k": 1},
        ("auto_unroll_max_step", "unroll_explicit"),
    ),
    "conv2d": (
        "autotvm_conv2d_nchw_fp32_V100",
        {"tile_f": 3, "tile_y": 3, "tile_x": 3, "tile_rc": 1, "tile_ry": 1, "tile_rx": 1},
        ("auto_unroll_max_step", "unroll_explicit"),
    ),
}
