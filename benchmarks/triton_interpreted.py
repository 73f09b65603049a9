#!/usr/bin/env python3
"""Interpret Triton's matrix products and write what came out, one row a kernel.

    python benchmarks/triton_interpreted.py          # rewrite results/triton_interpreted.jsonl
    python benchmarks/triton_interpreted.py sm90     # print the cases with this in their name only

Triton (the `peers` extra) compiles for sm_80 and sm_90 without a GPU; our interpreter executes the
PTX in every mode of time. Nothing ran on a GPU: `seconds` is what the interpretation took on the
machine at hand, which may have been busy, and no measure of any kernel.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jaxpipe.version import VERSION  # noqa: E402
from tests.ptx.triton_cases import CASES, FINDINGS, TritonCase  # noqa: E402
from tests.ptx.triton_compile import compile_case, version  # noqa: E402
from tests.ptx.triton_run import outcomes, unmet_claims  # noqa: E402

OUT = ROOT / "benchmarks" / "results" / "triton_interpreted.jsonl"
COMMAND = "python benchmarks/triton_interpreted.py"


def row(case: TritonCase) -> dict[str, object]:
    """All shapes of a case in all modes; `faults` counts runs with any (expected ones too)."""
    compiled = compile_case(case)
    found = outcomes(case)
    return {
        "kind": "triton_interpreted", "device": f"sm_{case.arch} (interpreted)", "name": case.name,
        "runs": len(found), "shapes": sorted({o.shape for o in found}),
        "warp_instructions": sum(sum(o.report.instructions.values()) for o in found),
        "seconds": round(sum(o.seconds for o in found), 3),
        "max_error_over_tolerance": round(max(o.error_over_tolerance for o in found), 4),
        "expected_hazard": FINDINGS.get(case.name, ""),
        "hazards": sorted({h.kind for o in found for h in o.report.hazards}),
        "faults": sum(bool(o.fault) for o in found) + len(unmet_claims(case, compiled)),
        "command": COMMAND, "versions": {"jaxpipe": VERSION, "triton": version()},
        "cores": os.cpu_count(),
    }  # fmt: skip


def main() -> int:
    """Write every row; 1 when a case has a fault that is not expected."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    rows = []
    for case in CASES:
        if only in case.name:
            rows.append(row(case))
            print(json.dumps(rows[-1]), flush=True)
    if not only:
        OUT.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return int(any(r["faults"] for r in rows if not r["expected_hazard"]))


if __name__ == "__main__":
    sys.exit(main())
