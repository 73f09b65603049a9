"""Draws a report: the pipeline of one block over time, and the roofline. Needs matplotlib.

In: a Report. Out: an image file. It must not know JAX.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxpipe.errors import UnsupportedError
from jaxpipe.explain_report import Report
from jaxpipe.model.loop import Main

STEPS = 12  # chunks that the timeline shows


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of one block: the stage that holds it, and when it is loaded and used (seconds)."""

    stage: int
    load_start: float
    load_end: float
    use_start: float
    use_end: float

    @property
    def wait(self) -> float:
        """Seconds in which the block waits for it."""
        return max(0.0, self.load_end - self.use_start)


def timeline(load: float, use: float, stages: int, steps: int) -> Iterator[Chunk]:
    """The chunks of one block alone: load j is issued when use j - stages is done."""
    ends: list[float] = []
    for step in range(steps):
        start = ends[step - stages] if step >= stages else 0.0
        arrives = start + load
        begin = max(arrives, ends[-1] if ends else 0.0)
        ends.append(begin + use)
        yield Chunk(step % stages, start, arrives, begin, ends[-1])


def plot(report: Report, path: str | os.PathLike[str]) -> None:
    """Write the picture of a report; UnsupportedError without matplotlib, or for its suffix."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError(
            f"drawing {path} needs matplotlib, which is not installed: "
            "pip install 'jaxpipe[plot]', or leave --plot away"
        ) from error
    with_timeline = report.phases is not None
    figure, axes = pyplot.subplots(1 + with_timeline, 1, figsize=(9, 4 * (1 + with_timeline)))
    known = figure.canvas.get_supported_filetypes()
    if pathlib.Path(path).suffix[1:].lower() not in known:
        raise UnsupportedError(f"cannot draw {path}: end its name in one of {', '.join(known)}")
    panels = list(axes) if with_timeline else [axes]
    if report.phases is not None:
        _draw_timeline(panels[0], report, report.phases.main)
    _draw_roofline(panels[-1], report)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_timeline(axes: Any, report: Report, main: Main) -> None:
    stages = int(main.stages[0])
    use = float(main.interval[0])
    chunks = timeline(float(main.load[0]), min(use, float(main.use[0])), stages, STEPS)
    for i, chunk in enumerate(chunks):
        row = stages - 1 - chunk.stage
        _bar(axes, row, chunk.load_start, chunk.load_end, "tab:blue", "load", i)
        _bar(axes, row, chunk.use_start, chunk.use_end, "tab:orange", "use", i)
        _bar(axes, row, chunk.load_end, chunk.use_start, "lightgray", "wait", i)
    axes.set_yticks(range(stages), [f"stage {stages - 1 - i}" for i in range(stages)])
    axes.set_xlabel("microseconds")
    axes.set_title(f"one block alone, first {STEPS} chunks\n{report.choice.schedule}", fontsize=9)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), loc="upper right")


def _bar(axes: Any, row: int, start: float, end: float, color: str, label: str, step: int) -> None:
    if end > start:
        left, width = 1e6 * start, 1e6 * (end - start)
        axes.barh(row, width, left=left, color=color, label=label, edgecolor="white")
        if label == "use":
            axes.text(left + width / 2, row, str(step), ha="center", va="center", fontsize=7)


def _draw_roofline(axes: Any, report: Report) -> None:
    ridge = report.peak_flops_hz / report.memory_bps
    low, high = min(1.0, report.intensity / 4), max(ridge, report.intensity) * 8
    points = [low, ridge, high]
    roof = [min(report.peak_flops_hz, x * report.memory_bps) / 1e12 for x in points]
    axes.loglog(points, roof, color="black")
    axes.loglog([report.intensity], [report.flops_hz / 1e12], "o", color="tab:red")
    axes.annotate(
        f"{report.flops_hz / 1e12:.3g} TFLOP/s", (report.intensity, report.flops_hz / 1e12),
        textcoords="offset points", xytext=(8, -4),
    )  # fmt: skip
    axes.set_xlabel("operations a byte of device memory")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"{report.problem} on {report.device.name}", fontsize=9)
    axes.grid(True, which="both", alpha=0.3)
