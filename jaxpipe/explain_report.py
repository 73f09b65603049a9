"""What the models say of one kernel, as data and as text for people.

In: a problem, a device, a schedule or none. Out: a Report, and its lines. It must not know JAX or
how a kernel is emitted; verdicts on buffers come from the compiler as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from jaxpipe import legality
from jaxpipe.choose import Choice, choose
from jaxpipe.compiler import verdicts
from jaxpipe.errors import JaxpipeError
from jaxpipe.model import alcop, roller
from jaxpipe.model import host as host_model
from jaxpipe.model.loop import BOUNDS, Main
from jaxpipe.model.table import table_of
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule, HostSchedule, Schedule
from jaxpipe.target import ARCHES, Device, HostDevice
from jaxpipe.transform.detect import Verdict

Executor = Literal["cuda", "host"]
BAR = 32  # columns of the longest bar
NEXT_BEST = 4
WORTH = 0.005  # changes that gain less are not shown

# What the words of Prediction.bound mean to somebody who wants a faster kernel.
MEANING = {
    "tensor": "the tensor cores are busy: nothing to gain but less padding",
    "shared": "shared memory cannot feed the tensor cores: larger warp tiles",
    "l2": "L2 cannot feed the blocks: larger blocks, or clusters that share panels",
    "dram": "device memory cannot deliver: fuse what stands around the product",
    "latency": "copies come later than they are used: more stages or blocks an SM",
    "launch": "the launch costs more than the work: fuse or batch such products",
    "epilogue": "writing results takes longest: a narrower result dtype, a fused epilogue",
    "start": "starting threads costs more than the work: fewer threads",
    "prepare": "copying operands takes longest: reuse packed weights",
    "pack": "packing takes longest: share panels (pack=shared) or larger blocks of rows",
    "multiply": "the multiply-adds are busy: nothing to gain but less padding",
    "wait": "operands come later than they are used: smaller strips, copy_lhs",
    "store": "storing results takes longest: a fused epilogue, fewer passes over k",
}
# A device that is better in one respect; the factor divides times of that part.
BETTER: dict[str, dict[str, float]] = {
    "twice the tensor rate": {"tensor_flops_hz": 2.0, "fma_flops_hz": 2.0},
    "twice the shared-memory bandwidth": {"shared_bytes_per_clk": 2.0},
    "twice the L2 bandwidth": {"l2_bps": 2.0, "l2_sm_bytes_per_clk": 2.0},
    "twice the device-memory bandwidth": {"dram_bps": 2.0},
    "half the latencies": {
        "l2_latency_clk": 0.5, "dram_latency_clk": 0.5, "shared_latency_clk": 0.5,
    },
    "launches for free": {"launch_s": 0.0},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """Another schedule or device: what it is, and its seconds."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that `explain` prints of one kernel; phases is None on the host.

    iteration: seconds of one main-loop step by what could bound it. notes: occupancy and waves, or
    items and threads, as text.
    """

    problem: Problem
    device: Device | HostDevice
    choice: Choice
    peak_flops_hz: float
    memory_bps: float
    phases: alcop.Phases | None
    iteration: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    next_best: tuple[Change, ...]
    would_help: tuple[Change, ...]

    @property
    def seconds(self) -> float:
        """Predicted seconds."""
        return self.choice.prediction.seconds

    @property
    def flops_hz(self) -> float:
        """Predicted rate."""
        return self.problem.flops / self.seconds

    @property
    def intensity(self) -> float:
        """Operations a byte that must cross memory."""
        return self.problem.flops / max(1, self.problem.bytes_min)

    @property
    def ceiling_flops_hz(self) -> float:
        """The roofline at this intensity."""
        return min(self.peak_flops_hz, self.intensity * self.memory_bps)


def report(
    problem: Problem, device: Device | HostDevice, schedule: Schedule | None = None
) -> Report:
    """The report of `problem` on `device`, with the schedule that jaxpipe would choose by default.

    Raises ScheduleError when `schedule` is illegal or none fits.
    """
    if isinstance(device, HostDevice):
        return _host_report(problem, device, schedule)
    return _gpu_report(problem, device, schedule)


def _gpu_report(problem: Problem, device: Device, schedule: Schedule | None) -> Report:
    choice = choose(problem, executor="cuda", device=device, explicit=schedule)
    chosen = choice.schedule
    assert isinstance(chosen, GpuSchedule)
    p = alcop.phases(problem, table_of([chosen]), device)
    terms = zip(BOUNDS, map(float, p.main.terms()[:, 0]), strict=True)
    return Report(
        problem, device, choice, _peak(problem, device), device.dram_bps, p, tuple(terms),
        tuple(_occupancy(p, device)), _verdicts(problem, chosen, device),
        _next_best(problem, device, choice), _would_help(problem, chosen, device, choice),
    )  # fmt: skip


def _host_report(problem: Problem, host: HostDevice, schedule: Schedule | None) -> Report:
    choice = choose(problem, executor="host", device=host, explicit=schedule)
    assert isinstance(choice.schedule, HostSchedule)
    plan = host_model.phases(problem, table_of([choice.schedule]), host).plan
    items = int(np.asarray(plan.items)[0])
    notes = (
        f"items      {items} of {int(plan.rows[0])} x {int(plan.cols[0])} results on "
        f"{int(plan.threads[0])} threads of {host.isa}",
        f"panels     packed {'once' if plan.is_rhs_shared[0] else 'by each item'}; lhs "
        f"{'copied' if plan.copies_lhs[0] else 'read in place'}",
    )
    return Report(
        problem, host, choice, host.threads * host.fma_flops_hz, host.dram_bps, None, (), notes, (),
        _next_best(problem, host, choice), (),
    )  # fmt: skip


def _peak(problem: Problem, device: Device) -> float:
    if problem.dtype == "float32" and problem.precision == "float32":
        return device.fma_flops_hz
    return device.flops_hz(problem.dtype)


def _verdicts(problem: Problem, schedule: GpuSchedule, device: Device) -> tuple[Verdict, ...]:
    try:
        return verdicts(problem, schedule, ARCHES[device.arch])
    except (JaxpipeError, NotImplementedError):
        return ()  # the text says so


def _occupancy(p: alcop.Phases, device: Device) -> Iterator[str]:
    o, blocks = p.occupancy, int(p.tiles.blocks[0])
    fits, runs = int(o.blocks_per_sm[0]), int(p.blocks_per_sm[0])
    yield (
        f"occupancy  {runs} blocks an SM ({fits} fit, {o.limit_name(0)} allows no more): "
        f"{int(o.shared_bytes[0])} bytes of shared memory, about {int(o.registers[0])} registers, "
        f"{int(o.threads[0])} threads a block"
    )
    waves = blocks / (runs * device.sm_count)
    yield f"waves      {blocks} blocks on {device.sm_count} SMs: {waves:.2f} waves"


# ---------------------------------------------------------------------- alternatives
def _next_best(problem: Problem, device: Device | HostDevice, choice: Choice) -> tuple[Change, ...]:
    """The construction's next schedules, with what they change against the chosen one."""
    built = roller.construct(problem, device, NEXT_BEST + 1)
    others = [s for s in built if s != choice.schedule][:NEXT_BEST]
    named = [(_difference(choice.schedule, s), s) for s in others]
    return tuple(Change(name, _seconds(problem, s, device)) for name, s in named)


def _seconds(problem: Problem, schedule: Schedule, device: Device | HostDevice) -> float:
    if isinstance(device, HostDevice):
        assert isinstance(schedule, HostSchedule)
        return host_model.predict(problem, schedule, device).seconds
    assert isinstance(schedule, GpuSchedule)
    return alcop.predict(problem, schedule, device).seconds


def _difference(old: Schedule, new: Schedule) -> str:
    changed = [
        f"{f.name}={getattr(new, f.name)}"
        for f in fields(new)
        if getattr(old, f.name, None) != getattr(new, f.name)
    ]
    return ",".join(changed) or "the same"


def _would_help(
    problem: Problem, schedule: GpuSchedule, device: Device, choice: Choice
) -> tuple[Change, ...]:
    """One change of the schedule, or of the machine, at a time; those that gain, best first."""
    changes = [*_one_knob(problem, schedule, device), *_one_part(problem, schedule, device)]
    limit = choice.prediction.seconds * (1.0 - WORTH)
    return tuple(sorted((c for c in changes if c.seconds < limit), key=lambda c: c.seconds))


def _one_knob(problem: Problem, schedule: GpuSchedule, device: Device) -> Iterator[Change]:
    arch = ARCHES[device.arch]
    for name, value in _neighbours(schedule):
        other = replace(schedule, **{name: value})
        if not legality.check(other, problem, arch):
            seconds = alcop.predict(problem, other, device).seconds
            yield Change(f"{name}={value} (is {getattr(schedule, name)})", seconds)


def _neighbours(s: GpuSchedule) -> Iterable[tuple[str, Any]]:
    for name in ("smem_stages", "split_k"):
        yield name, getattr(s, name) + 1
        yield name, max(1, getattr(s, name) - 1)
    for name in ("block_m", "block_n", "block_k", "raster_group"):
        yield name, getattr(s, name) * 2
        yield name, max(1, getattr(s, name) // 2)
    yield "reg_stages", 3 - s.reg_stages
    if s.family == "hopper":
        yield "ping_pong", not s.ping_pong
        yield "cluster_m", 3 - s.cluster_m


def _one_part(problem: Problem, schedule: GpuSchedule, device: Device) -> Iterator[Change]:
    for what, factors in BETTER.items():
        changed = {name: _scaled(getattr(device, name), f) for name, f in factors.items()}
        seconds = alcop.predict(problem, schedule, replace(device, **changed)).seconds
        yield Change(what, seconds)


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple((dtype, rate * factor) for dtype, rate in value)
    return value * factor


# ---------------------------------------------------------------------- text
def lines(r: Report) -> Iterator[str]:
    """The report for a terminal."""
    p = r.choice.prediction
    yield f"{r.problem} on {r.device.name}"
    yield f"schedule   {r.choice.schedule}"
    yield f"source     {r.choice.source}: {r.choice.reason}"
    if r.choice.xla_wins:
        yield "           XLA measured faster: implementation=None takes XLA"
    share = 100 * r.flops_hz / r.peak_flops_hz
    yield (
        f"predicted  {_time(p.seconds)}, {r.flops_hz / 1e12:.3g} TFLOP/s, {share:.3g} % of "
        f"{r.peak_flops_hz / 1e12:.4g}"
    )
    yield f"bound by   {p.bound}: {MEANING[p.bound]}"
    yield from ("", "where the time goes", *_bars(p.parts))
    if r.iteration and r.phases is not None:
        yield from ("", *_iteration(r.phases.main), *_bars(r.iteration))
    yield from ("", *r.notes, *_roofline(r))
    if r.phases is not None:
        yield from ("", "pipelining", *_pipelining(r.verdicts))
    yield from _changes("next best", r.next_best, p.seconds)
    yield from _changes("what would help", r.would_help, p.seconds)


def _iteration(main: Main) -> Iterator[str]:
    yield (
        f"one main-loop step of all resident blocks ({_time(float(main.interval[0]))}, "
        f"{int(main.steps[0])} steps a block)"
    )
    yield (
        f"  a chunk's copy takes {_time(float(main.load[0]))}, its use "
        f"{_time(float(main.use[0]))}; {int(main.stages[0])} stages of {int(main.workers[0])} "
        f"blocks hide up to {_time(_hidden(main))}"
    )


def _hidden(main: Main) -> float:
    """Latency that the ring hides: (stages * workers - 1) uses."""
    uses = float(main.stages[0] * np.maximum(main.workers[0] * main.busy[0], main.use[0]))
    return max(0.0, uses - float(main.use[0]))


def _bars(parts: Iterable[tuple[str, float]]) -> Iterator[str]:
    rows = list(parts)
    longest = max((seconds for _, seconds in rows), default=0.0)
    for name, seconds in rows:
        bar = "#" * round(BAR * seconds / longest) if longest else ""
        yield f"  {name:<9}{_time(seconds):>10}  {bar}".rstrip()


def _roofline(r: Report) -> Iterator[str]:
    ridge = r.peak_flops_hz / r.memory_bps
    side = "memory" if r.intensity < ridge else "compute"
    reached = 100 * r.flops_hz / r.ceiling_flops_hz
    yield (
        f"roofline   {r.intensity:.4g} operations a byte, ridge at {ridge:.4g}: {side} side, "
        f"ceiling {r.ceiling_flops_hz / 1e12:.3g} TFLOP/s, {reached:.3g} % of it"
    )


def _pipelining(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    if not verdicts:
        yield "  no verdicts: the kernel of this problem could not be lowered"
    for verdict in verdicts:
        yield from (f"  {line}" for line in str(verdict).splitlines())


def _changes(title: str, changes: tuple[Change, ...], now: float) -> Iterator[str]:
    if not changes:
        return
    yield from ("", title)
    for change in changes:
        gain = 100 * (change.seconds / now - 1)
        yield f"  {_time(change.seconds):>10}  {gain:+6.1f} %  {change.what}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
