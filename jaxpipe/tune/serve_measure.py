"""`python -m jaxpipe.tune.serve_measure`: measures schedules on this process's own device.

A request is a Job; the answer is a list of Measurements. Correctness is checked before a time
counts, XLA runs interleaved, and a trial that is clearly slower than the incumbent ends after its
first short round.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from typing import Any

import jax
import jaxlib

from jaxpipe.records import Measurement
from jaxpipe.runtime.measure import measure
from jaxpipe.runtime.timing import Plan
from jaxpipe.tune.finals import FINAL_BLOCKS
from jaxpipe.tune.job import Job
from jaxpipe.tune.serve import serve
from jaxpipe.version import VERSION

ROUND = Plan(blocks=5, sample_s=0.005, warmup_s=0.02)
"""One short round: enough to tell a loser."""
ROUNDS = 3
FINAL = Plan(blocks=FINAL_BLOCKS, sample_s=0.01, warmup_s=0.05)
CLEARLY_SLOWER = 1.25
"""A median this many times the incumbent's ends a trial: seen noise stays below (tuning/README)."""


def handle(request: Mapping[str, Any]) -> Any:
    """Measure the job: {"measurements": [...], "versions": {...}}."""
    job = Job.from_json(request)
    try:
        found = _raced(job) if job.effort == "trial" else _measure(job, FINAL)
    except Exception as error:
        # Not a candidate's fault (measure says those by status): say it for all of the job.
        reason = f"cannot measure {job.problem}: {type(error).__name__}: {error}"
        found = tuple(Measurement("launch_failed", reason=reason) for _ in job.schedules)
    return {
        "measurements": [dataclasses.asdict(m) for m in found],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What a time depends on besides the schedule."""
    device = jax.devices()[0]
    return {
        "jaxpipe": VERSION,
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "platform": device.platform,
        "device_kind": device.device_kind,
        "machine": platform.machine(),
    }


def _measure(job: Job, plan: Plan) -> tuple[Measurement, ...]:
    # A GPU does not care how busy the cores are, and compilers run beside it on purpose.
    quiet = plan if job.executor == "host" else dataclasses.replace(plan, max_load=float("inf"))
    return measure(job.problem, job.schedules, executor=job.executor, arch=job.arch, plan=quiet)


def _raced(job: Job) -> tuple[Measurement, ...]:
    """Rounds until the candidate has lost or has had ROUNDS; one schedule a trial."""
    rounds: list[Measurement] = []
    for _ in range(ROUNDS):
        (measured,) = _measure(job, ROUND)
        if measured.status != "ok":
            return (measured,)
        rounds.append(measured)
        if is_loser(measured, job.incumbent):
            slower = job.incumbent / measured.speedup
            reason = f"{slower:.3g} times slower than the best so far after {len(rounds)} round"
            return (dataclasses.replace(joined(rounds), status="pruned", reason=reason),)
    return (joined(rounds),)


def is_loser(measured: Measurement, incumbent: float) -> bool:
    """True when a schedule's speedup over XLA is clearly below the incumbent's."""
    return bool(incumbent and measured.speedup and measured.speedup * CLEARLY_SLOWER < incumbent)


def joined(rounds: list[Measurement]) -> Measurement:
    """The rounds of one schedule as one measurement."""
    return Measurement(
        "ok",
        tuple(s for m in rounds for s in m.samples_s),
        tuple(s for m in rounds for s in m.baseline_s),
        rounds[-1].reason,
        max(m.max_error for m in rounds),
        max(m.foreign_load for m in rounds),
    )


if __name__ == "__main__":
    serve(handle)
