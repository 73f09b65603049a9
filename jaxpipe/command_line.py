"""What command lines share: numbers as argparse takes them, and faults told in one line."""

from __future__ import annotations

import math
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable

from jaxpipe.errors import JaxpipeError

LARGEST_SIZE = 2**31 - 1
FAULT, INTERRUPTED = 1, 130


def told(name: str, action: Callable[[], int]) -> int:
    """The exit code of `action`; what a user can cause is one line on standard error and FAULT.

    That is a JaxpipeError, a file that cannot be read or written, and too little memory.
    """
    try:
        code = action()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except KeyboardInterrupt:
        return INTERRUPTED
    except (JaxpipeError, OSError) as error:
        reason = str(error)
    except MemoryError as error:
        reason = f"not enough memory: {error}; use smaller sizes"
    print(f"{name}: {reason}", file=sys.stderr)
    return FAULT


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1, LARGEST_SIZE)


def natural(text: str) -> int:
    """A whole number of at least 0, such as one dimension of a problem."""
    return _whole(text, 0, LARGEST_SIZE)


def seconds(text: str) -> float:
    """A finite time of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r}: use seconds, 0 or more")
    return value


def _whole(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ArgumentTypeError(f"{text!r}: use a whole number from {least} to {most}")
    return value
