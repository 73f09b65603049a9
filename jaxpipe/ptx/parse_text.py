"""PTX as characters: comments, places, brackets. Knows no statement."""

from __future__ import annotations

import bisect
import re

from jaxpipe.errors import PtxError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SPACE = re.compile(r"\s*")
_BRACE = re.compile(r"[{}]")
_FILE = re.compile(r'\s*(\d+)\s+"([^"]*)"')
# The bits of a float32 or float64 constant.
FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")


class PtxText:
    """A file with its comments blanked, so that offsets and line numbers stay."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.text = _COMMENT.sub(_blank, original)
        self.newlines = [m.start() for m in re.finditer("\n", self.text)]
        self.files: dict[str, str] = {}
        for match in re.finditer(r"^\s*\.file\b([^\n]*)", self.text, re.M):
            if found := _FILE.match(match.group(1)):
                self.files[found.group(1)] = found.group(2)

    def line_at(self, offset: int) -> int:
        """The line number, from 1."""
        return bisect.bisect_left(self.newlines, offset) + 1

    def fail(self, offset: int, why: str, text: str) -> PtxError:
        """The error for what cannot be read."""
        shown = " ".join(text.split())[:200]
        return PtxError(f"PTX line {self.line_at(offset)}: {why}: `{shown}`")

    def skip(self, at: int) -> int:
        """The offset of the next character that is no blank."""
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def matching(self, opening: int) -> int:
        """The offset of the brace that closes the one at `opening`."""
        depth = 0
        for match in _BRACE.finditer(self.text, opening):
            depth += 1 if match.group(0) == "{" else -1
            if depth == 0:
                return match.start()
        raise self.fail(opening, "a brace is not closed", self.text[opening : opening + 80])


def split_operands(text: str) -> list[str]:
    """`a, {b, c}, [d, e]` -> three pieces: commas inside brackets do not split."""
    pieces, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
    if last := text[start:].strip():
        pieces.append(last)
    return pieces


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group(0))


def align_up(offset: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return (offset + alignment - 1) // alignment * alignment
