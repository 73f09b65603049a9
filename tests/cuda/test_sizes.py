"""Sizes that a call brings, on a stand-in driver: one module, a grid and parameters a call."""

import struct
from dataclasses import replace

import pytest

from jaxpipe.kernel import Pointer, Size, SizeOf, Tiles
from tests.cuda import machine
from tests.cuda.machine import MAIN, TENSOR, Call

INVALID_ARGUMENT = 3
ROW, ENTRY = 256, 4096  # bytes of one row of lhs and of a result, of rhs for one batch entry
BOTH = ("m", "batch0")
LAUNCH = replace(
    MAIN,
    entry="sized",
    params=(replace(TENSOR, dims=(64, 1), sized=((1, "m"),)), Pointer("out", 64), SizeOf("m", 3)),
    tiles=(Tiles("batch0", 1, 1), Tiles("m", 3, 32)),
)
CALL = Call(
    launches=(LAUNCH,),
    operands=(("lhs", ROW, BOTH), ("rhs", ENTRY, ("batch0",))),
    results=(("out", ROW, BOTH), ("workspace", 256)),
    entries=("sized",),
    key="sizes",
    sizes=(Size("batch0", "rhs", 100), Size("m", "out", 1000)),
)


def buffers(rows: int, batch: int, base: int = 0x10000) -> tuple[list, list]:
    operands = [(base, ROW * rows * batch), (base + 0x1000000, ENTRY * batch)]
    return operands, [(base + 0x2000000, ROW * rows * batch), (base + 0x3000000, 256)]


def launched(log: list[str]) -> list[list[str]]:
    return [line.split() for line in log if line.startswith("launch")]


def test_one_module_serves_calls_of_different_sizes(child) -> None:
    sizes = [(1, 1), (11, 1), (32, 5), (33, 2)]
    answers, log = child(machine.run_several, CALL, [buffers(*s) for s in sizes])
    assert answers == [(0, "")] * 5
    assert sum(line.startswith("load") for line in log) == 1
    launches = launched(log)
    blocks = [4 * batch * -(-3 * rows // 32) for rows, batch in sizes]
    assert [words[4] for words in launches] == [f"{x}x2x1" for x in blocks]
    for (rows, _), words in zip(sizes, launches, strict=True):
        tensor_map, _, scalar = (bytes.fromhex(word) for word in words[-3:])
        assert struct.unpack("<i", scalar) == (3 * rows,)
        assert struct.unpack("<16Q", tensor_map)[2:4] == (64, rows)


@pytest.mark.parametrize("sizes", [(0, 3), (5, 0), (0, 0)])
def test_a_call_without_elements_launches_nothing(child, sizes) -> None:
    answers, log = child(machine.run_several, CALL, [buffers(*sizes)])
    assert answers == [(0, "")] * 2
    assert launched(log) == []


BAD = {
    "no whole entries": ([(0x10000, ROW), (0x20000, ENTRY + 1)], [(0x30000, ROW)], "rhs has 4097"),
    "no whole rows": (
        [(0x10000, ROW * 6), (0x20000, ENTRY * 2)], [(0x30000, ROW * 5)],
        "out has 1280 bytes, the kernel takes up to 1000 times 512",
    ),
    "too many entries": (
        [(0x10000, ROW * 101), (0x20000, ENTRY * 101)], [(0x30000, ROW * 101)], "up to 100 times",
    ),
    "too few rows of lhs": (
        [(0x10000, ROW * 4), (0x20000, ENTRY)], [(0x30000, ROW * 5)],
        "lhs was lowered for 1280 bytes, the call has 1024",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_buffers_that_no_size_explains_are_refused_not_read(child, name) -> None:
    operands, out, text = BAD[name]
    answers, log = child(machine.run_several, CALL, [(operands, [*out, (0x40000, 256)])])
    assert answers[1][0] == INVALID_ARGUMENT
    assert text in answers[1][1]
    assert launched(log) == []


def test_a_grid_that_is_too_large_is_refused(child) -> None:
    wide = replace(CALL.launches[0], grid=(2**30, 1, 1))
    call = replace(CALL, launches=(wide,), key="too large")
    answers, log = child(machine.run_several, call, [buffers(20, 1)])
    assert answers[1][0] == INVALID_ARGUMENT
    assert "a grid has at most 2147483647" in answers[1][1]
    assert launched(log) == []
