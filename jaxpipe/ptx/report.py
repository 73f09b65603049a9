"""What a run of the interpreter found and counted, as data.

In: hazards and counters of csrc/ptx, an Entry. Out: a Report, JSON-able, with counts by
instruction class, by access site and by trip of the main loop. It prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jaxpipe.errors import HazardError
from jaxpipe.ptx.nodes import Entry, Instruction
from jaxpipe.ptx.phases import Phase, phases

# Columns of the counters, in the order of csrc/ptx/counters.h.
COUNTER_FIELDS = (
    "executions", "lanes", "shared_requests", "shared_wavefronts", "ideal_wavefronts",
    "shared_bytes", "global_requests", "global_sectors", "global_bytes",
)  # fmt: skip
COUNTERS = np.dtype([(name, "<u8") for name in COUNTER_FIELDS])
SECTOR_BYTES = 32

_TENSOR = {"mma", "wgmma"}
_CLASS_OF = {
    **dict.fromkeys(("mma",), "tensor"),
    **dict.fromkeys(("ldmatrix", "stmatrix"), "matrix move"),
    **dict.fromkeys(("bar", "barrier", "mbarrier", "fence", "membar"), "synchronisation"),
    **dict.fromkeys(("bra", "brx", "ret", "exit", "setmaxnreg", "elect"), "control"),
    **dict.fromkeys(("setp", "selp", "testp"), "predicate"),
    **dict.fromkeys(("cvt", "prmt"), "conversion"),
    **dict.fromkeys(("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"), "special"),
    **dict.fromkeys(("shfl", "vote", "match", "redux", "activemask"), "warp"),
    **dict.fromkeys(("mov", "cvta", "mapa"), "move"),
    **dict.fromkeys(("atom", "red"), "atomic"),
}
_WAITS = {"commit_group", "wait_group", "wait_all", "mbarrier"}
_FLOAT_TYPES = {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"}


def class_of(instruction: Instruction) -> str:
    """The class under which an instruction is counted."""
    word, rest = instruction.opcode[0], set(instruction.opcode[1:])
    if word == "wgmma":
        return "tensor" if "mma_async" in rest else "synchronisation"
    if word == "cp":
        return "synchronisation" if _WAITS & rest else "asynchronous copy"
    if word in ("ld", "st"):
        if "param" in rest or "param::entry" in rest:
            return "move"
        space = "shared" if any(w.startswith("shared") for w in rest) else "global"
        space = "local" if "local" in rest else space
        return f"{space} {'load' if word == 'ld' else 'store'}"
    if word in _CLASS_OF:
        return _CLASS_OF[word]
    if rest & {"pred"}:
        return "predicate"
    return "float" if rest & _FLOAT_TYPES else "integer"


def is_tensor(instruction: Instruction) -> bool:
    """Whether the instruction is a matrix product."""
    return instruction.opcode[0] in _TENSOR and class_of(instruction) == "tensor"


@dataclass(frozen=True, slots=True)
class Hazard:
    """One finding. `text` says everything; `file` and `line` are the source when -lineinfo was on.

    warp and lane are of `block` (linear, x fastest); lane is -1 for a whole warp. count is how
    often the same pair of instructions conflicted.
    """

    kind: str
    text: str
    ptx_line: int
    file: str
    line: int
    block: int
    warp: int
    lane: int
    address: int
    count: int
    detail: str
    instruction: int
    other_instruction: int


@dataclass(frozen=True, slots=True)
class AccessSite:
    """Traffic of one instruction. Wavefronts beyond the ideal are bank conflicts.

    phase says of an access to shared memory whether it serves operands or stages results.
    """

    text: str
    ptx_line: int
    file: str
    line: int
    requests: int
    bytes: int
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    sectors: int = 0
    phase: Phase = "operand"

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts that conflict-free addresses would not need."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def sectors_per_request(self) -> float:
        """32-byte sectors that one warp's access touches on average."""
        return self.sectors / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """The main loop: the innermost one with the most matrix products. Counts per warp and trip."""

    first_ptx_line: int
    last_ptx_line: int
    trips: int
    instructions_per_trip: dict[str, float]
    tensor_instructions_per_trip: float
    barriers_per_trip: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one run, or several merged. JSON-able by `as_dict`."""

    hazards: tuple[Hazard, ...]
    instructions: dict[str, int]
    tensor_instructions: int
    barriers: int
    bytes: dict[str, int]
    shared: tuple[AccessSite, ...]
    global_: tuple[AccessSite, ...]
    main_loop: LoopCounts | None

    @property
    def ok(self) -> bool:
        """True when nothing was found."""
        return not self.hazards

    @property
    def bank_conflicts(self) -> int:
        """Extra wavefronts of all accesses to shared memory."""
        return sum(site.bank_conflicts for site in self.shared)

    def conflicts_of(self, phase: Phase) -> int:
        """Extra wavefronts of the accesses that serve operands, or of those that stage results."""
        return sum(site.bank_conflicts for site in self.shared if site.phase == phase)

    def raise_on_hazard(self, what: str) -> None:
        """Raises HazardError with every finding about `what`, if there is one."""
        if self.hazards:
            lines = "\n  ".join(hazard.text for hazard in self.hazards)
            raise HazardError(f"{what}: {len(self.hazards)} hazards\n  {lines}")

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self) | {"ok": self.ok, "bank_conflicts": self.bank_conflicts}


def make_report(entry: Entry, hazards: Iterable[dict[str, Any]], counters: np.ndarray) -> Report:
    """The report of one run: `counters` has a row an instruction, columns as COUNTER_FIELDS."""
    table = np.ascontiguousarray(counters).view(COUNTERS).reshape(-1)
    return Report(
        hazards=tuple(Hazard(**hazard) for hazard in hazards),
        instructions=_by_class(entry, table["executions"]),
        tensor_instructions=_count(entry, table, is_tensor),
        barriers=_count(entry, table, _is_barrier),
        bytes=_bytes(entry, table),
        shared=_shared_sites(entry, table),
        global_=_global_sites(entry, table),
        main_loop=_main_loop(entry, table["executions"]),
    )


def merge(reports: Iterable[Report]) -> Report:
    """One report of any number of launches, with the main loop of the one with most products."""
    reports = tuple(reports)
    instructions: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for report in reports:
        instructions.update(report.instructions)
        moved.update(report.bytes)
    most = max(reports, key=lambda report: report.tensor_instructions, default=None)
    return Report(
        hazards=tuple(h for report in reports for h in report.hazards),
        instructions=dict(instructions),
        tensor_instructions=sum(report.tensor_instructions for report in reports),
        barriers=sum(report.barriers for report in reports),
        bytes=dict(moved),
        shared=tuple(site for report in reports for site in report.shared),
        global_=tuple(site for report in reports for site in report.global_),
        main_loop=most.main_loop if most else None,
    )


def _is_barrier(instruction: Instruction) -> bool:
    return instruction.opcode[0] in ("bar", "barrier") and "warp" not in instruction.opcode


def _by_class(entry: Entry, executions: np.ndarray) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for instruction, executed in zip(entry.instructions, executions, strict=True):
        counts[class_of(instruction)] += int(executed)
    return {name: count for name, count in sorted(counts.items()) if count}


def _count(entry: Entry, table: np.ndarray, wanted: Any) -> int:
    pairs = zip(entry.instructions, table["executions"], strict=True)
    return int(sum(int(executed) for instruction, executed in pairs if wanted(instruction)))


def _direction(instruction: Instruction) -> str:
    writes = ("st", "stmatrix", "red")
    return "write" if instruction.opcode[0] in writes else "read"


def _bytes(entry: Entry, table: np.ndarray) -> dict[str, int]:
    """Bytes by level and direction; a copy into shared memory reads global and writes shared."""
    moved: Counter[str] = Counter()
    for instruction, row in zip(entry.instructions, table, strict=True):
        is_copy = class_of(instruction) == "asynchronous copy"
        to_global = is_copy and "bulk_group" in instruction.opcode
        shared = ("read" if to_global else "write") if is_copy else _direction(instruction)
        global_ = ("write" if to_global else "read") if is_copy else _direction(instruction)
        moved[f"shared_{shared}"] += int(row["shared_bytes"])
        moved[f"global_{global_}"] += int(row["global_bytes"])
        moved["global_sectors"] += int(row["global_sectors"]) * SECTOR_BYTES
    return dict(moved)


def _place(instruction: Instruction) -> dict[str, Any]:
    source = instruction.source
    return {
        "text": instruction.text,
        "ptx_line": instruction.ptx_line,
        "file": source.file if source else "",
        "line": source.line if source else 0,
    }


def _shared_sites(entry: Entry, table: np.ndarray) -> tuple[AccessSite, ...]:
    served = phases(entry, is_tensor)
    return tuple(
        AccessSite(**_place(instruction), requests=int(row["shared_requests"]),
                   bytes=int(row["shared_bytes"]), wavefronts=int(row["shared_wavefronts"]),
                   ideal_wavefronts=int(row["ideal_wavefronts"]), phase=phase)
        for instruction, row, phase in zip(entry.instructions, table, served, strict=True)
        if row["shared_requests"]
    )  # fmt: skip


def _global_sites(entry: Entry, table: np.ndarray) -> tuple[AccessSite, ...]:
    return tuple(
        AccessSite(**_place(instruction), requests=int(row["global_requests"]),
                   bytes=int(row["global_bytes"]), sectors=int(row["global_sectors"]))
        for instruction, row in zip(entry.instructions, table, strict=True)
        if row["global_requests"]
    )  # fmt: skip


def _loops(entry: Entry) -> list[tuple[int, int]]:
    """Backward branches as (first, last) instruction; innermost ones only hold matrix products."""
    edges = [
        (target, index)
        for index, instruction in enumerate(entry.instructions)
        for target in instruction.targets
        if target <= index
    ]
    with_products = [
        (first, last)
        for first, last in edges
        if any(is_tensor(i) for i in entry.instructions[first : last + 1])
    ]
    return [
        loop
        for loop in with_products
        if not any(o != loop and o[0] >= loop[0] and o[1] <= loop[1] for o in with_products)
    ]


def _main_loop(entry: Entry, executions: np.ndarray) -> LoopCounts | None:
    best: tuple[int, int, int] | None = None
    for first, last in _loops(entry):
        products = sum(
            int(executions[index])
            for index in range(first, last + 1)
            if is_tensor(entry.instructions[index])
        )
        if products and (best is None or products > best[0]):
            best = (products, first, last)
    if best is None:
        return None
    products, first, last = best
    body = entry.instructions[first : last + 1]
    # A block that stopped may have entered the loop without passing its first instruction.
    trips = int(executions[first]) or int(executions[first : last + 1].max())
    classes: Counter[str] = Counter()
    barriers = 0
    for instruction, executed in zip(body, executions[first : last + 1], strict=True):
        classes[class_of(instruction)] += int(executed)
        barriers += int(executed) if _is_barrier(instruction) else 0
    return LoopCounts(
        first_ptx_line=body[0].ptx_line,
        last_ptx_line=body[-1].ptx_line,
        trips=trips,
        instructions_per_trip={name: n / trips for name, n in sorted(classes.items()) if n},
        tensor_instructions_per_trip=products / trips,
        barriers_per_trip=barriers / trips,
    )
