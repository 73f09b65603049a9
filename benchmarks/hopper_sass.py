#!/usr/bin/env python3
"""Count the main loops of Hopper kernels in machine code, beside two peers.

    python benchmarks/hopper_sass.py       # rewrite benchmarks/results/hopper_sass.jsonl

Nothing is timed and no GPU is needed: NVRTC compiles, nvdisasm lists. A row has the instructions
and the tensor-core instructions of one step along k (one k tile). `prototype` and `triton` are
constants: the throw-away kernel of this project's research, and Triton 3.9's warp-specialised
kernel of the same tile, both counted in the same way.
"""

from __future__ import annotations

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxpipe.compiler import compile_kernel  # noqa: E402
from jaxpipe.geometry_hopper import geometry  # noqa: E402
from jaxpipe.problem import Layout, Matmul  # noqa: E402
from jaxpipe.schedule import GpuSchedule  # noqa: E402
from jaxpipe.toolchain.sass import disassemble, tensor_instructions  # noqa: E402
from jaxpipe.version import VERSION  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "hopper_sass.jsonl"
COMMAND = "python benchmarks/hopper_sass.py"
PEERS = {
    (128, 128, False): {"prototype": 41, "triton": 61},
    (128, 256, False): {"prototype": 46, "triton": 60},
}
SCHEDULES = (
    "block_m=128,block_n=128,smem_stages=4",
    "block_m=128,block_n=256,smem_stages=4",
    "block_m=128,block_n=256,smem_stages=4,cluster_m=2",
    "block_m=256,block_n=128,smem_stages=4,cluster_n=2",
    "block_m=128,block_n=192,smem_stages=4",
    "block_m=128,block_n=128,smem_stages=5,ping_pong=1",
    "block_m=64,block_n=256,smem_stages=4,ping_pong=1",
)


def row(text: str, layout: str, k: int) -> dict[str, object]:
    """One kernel's counts, per k tile."""
    problem = Matmul(4096, 4096, k, rhs=Layout(transposed=layout[1] == "t"))
    schedule = GpuSchedule.parse(f"family=hopper,block_k=64,consumers=2,{text}")
    kernel = compile_kernel(problem, schedule, "sm_90a")
    loop = disassemble(kernel.cubin)["jaxpipe_hopper"].main_loop()
    g = geometry(problem, schedule)
    steps = tensor_instructions(loop) / (g.k_instructions * g.atoms)
    resources = kernel.resources[0]
    key = (schedule.block_m, schedule.block_n, schedule.ping_pong or g.cluster > 1)
    return {
        "kind": "hopper_sass", "device": "sm_90a (not run)", "problem": str(problem),
        "schedule": str(schedule), "k_tiles": g.k_tiles, "unrolled_steps": steps,
        "instructions_per_k_tile": round(len(loop) / steps, 2),
        "tensor_core_per_k_tile": g.k_instructions * g.atoms,
        "registers": resources.registers, "spill_bytes": resources.spill_store_bytes,
        "shared_bytes": g.shared.total_bytes, "peers": PEERS.get(key, {}), "command": COMMAND,
        "versions": {"jaxpipe": VERSION, "compiler": kernel.compiler},
    }  # fmt: skip


def main() -> int:
    """Write every row, print the short form."""
    found = [row(t, layout, k) for t in SCHEDULES for layout in ("nt", "nn") for k in (4096, 832)]
    OUT.write_text("".join(json.dumps(r) + "\n" for r in found))
    for r in found:
        print(r["problem"], r["schedule"], r["instructions_per_k_tile"], r["peers"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
