"""Which accesses to shared memory serve operands, and which stage results on their way out.

In: an Entry. Out: a phase for every instruction. Decided on the control flow of the PTX itself,
whatever order the compiler put the code in, so that the same counts mean the same in every kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from jaxpipe.ptx.nodes import Entry, Instruction

Phase = Literal["operand", "staging"]
_ENDS = ("ret", "exit", "trap")


def phases(entry: Entry, is_product: Callable[[Instruction], bool]) -> tuple[Phase, ...]:
    """The phase of every instruction, as it would count if it accessed shared memory.

    ldmatrix and copies into shared memory serve operands wherever they stand. Anything else is
    "staging" when a product has come before it and, in a kernel of mma.sync, none comes after:
    operands pass through registers there, in the drain of the pipeline too. wgmma reads shared
    memory itself and a persistent block goes on to the next product, so that what its warps touch
    after a product is staging. In a kernel without products everything else is staging.
    """
    body = entry.instructions
    products = [i for i, instruction in enumerate(body) if is_product(instruction)]
    reads_itself = any(body[i].opcode[0] == "wgmma" for i in products)
    forward, backward = _edges(body)
    after = _reached(products, forward)
    before = set() if reads_itself else _reached(products, backward)
    found: list[Phase] = []
    for index, instruction in enumerate(body):
        is_late = not products or (index in after and index not in before)
        found.append("staging" if is_late and not _moves_operands(instruction) else "operand")
    return tuple(found)


def _moves_operands(instruction: Instruction) -> bool:
    """ldmatrix, or an asynchronous copy that does not store to global memory."""
    word, rest = instruction.opcode[0], instruction.opcode[1:]
    return word == "ldmatrix" or (word == "cp" and "bulk_group" not in rest)


def _edges(body: tuple[Instruction, ...]) -> tuple[list[list[int]], list[list[int]]]:
    """Successors and predecessors of every instruction."""
    forward: list[list[int]] = [[] for _ in body]
    backward: list[list[int]] = [[] for _ in body]
    for index, instruction in enumerate(body):
        to = list(instruction.targets)
        word = instruction.opcode[0]
        leaves = word in (*_ENDS, "bra", "brx") and instruction.guard is None
        if not leaves and index + 1 < len(body):
            to.append(index + 1)
        forward[index] = to
        for target in to:
            backward[target].append(index)
    return forward, backward


def _reached(starts: Iterable[int], edges: list[list[int]]) -> set[int]:
    """Everything that one step or more leads to from `starts`."""
    found: set[int] = set()
    waiting = [to for start in starts for to in edges[start]]
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting += edges[index]
    return found
