"""`python -m jaxpipe.tune.serve_compile`: compiles kernels into the cache, for others to run.

A request is one schedule of a problem; the answer is its status, what the compiler reported, and
seconds. Needs no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from jaxpipe.compiler import compile_kernel
from jaxpipe.errors import JaxpipeError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.schedule import GpuSchedule
from jaxpipe.tune.job import Job
from jaxpipe.tune.serve import serve


def handle(request: Mapping[str, Any]) -> Any:
    """Compile the job's schedule: {"status", "reason", "resources", "seconds"}."""
    job = Job.from_json(request)
    schedule = job.schedules[0]
    assert isinstance(schedule, GpuSchedule)
    start = time.perf_counter()
    try:
        compiled = compile_kernel(job.problem, schedule, job.arch)
    except (JaxpipeError, MemoryError) as error:
        return {
            "status": "compile_failed",
            "reason": f"{type(error).__name__}: {error}"[:2000],
            "resources": {},
            "seconds": time.perf_counter() - start,
        }
    return {
        "status": "ok",
        "reason": "",
        "resources": resources_of(compiled),
        "seconds": time.perf_counter() - start,
    }


def resources_of(compiled: CompiledKernel) -> dict[str, int]:
    """The main entry's registers and static shared bytes, and spills of all entries."""
    if not compiled.resources:
        return {}
    return {
        "registers": max(r.registers for r in compiled.resources),
        "spill_bytes": sum(r.spill_store_bytes + r.spill_load_bytes for r in compiled.resources),
        "static_shared_bytes": max(r.shared_bytes for r in compiled.resources),
    }


if __name__ == "__main__":
    serve(handle)
