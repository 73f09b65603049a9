"""A child process that answers one JSON line with another, and may crash or hang without harm.

In: the module that serves, limits. Out: its answers, or ChildLost with the reason. A child that
died or was killed for taking too long is started again by the next call. It must not know what is
asked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal

STDERR_KEPT_BYTES = 4096
START_S = 120.0
"""What a child may take to import its libraries, on top of a call's own limit."""


class ChildLost(Exception):  # noqa: N818 (a signal between us, not an error for users)
    """The child gave no answer: `status` is "crashed" or "timeout", str() has the details."""

    def __init__(self, status: Literal["crashed", "timeout"], reason: str) -> None:
        super().__init__(reason)
        self.status: Literal["crashed", "timeout"] = status


@dataclass
class IsolatedProcess:
    """`python -m module` behind a pipe. memory_bytes: address space limit, 0 for none."""

    module: str
    memory_bytes: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _errors: IO[bytes] | None = field(default=None, init=False)

    def call(self, request: Mapping[str, Any], timeout_s: float) -> Any:
        """The child's answer to `request`, or ChildLost."""
        started = self._ensure()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise self._lost() from None
        return json.loads(self._line(timeout_s + (START_S if started else 0.0)))

    def close(self) -> None:
        """Kill the child, if any."""
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            _signal_group(process, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                _close_quietly(pipe)

    def _ensure(self) -> bool:
        """Start the child where none is alive; True when it was started now."""
        if self._process is not None and self._process.poll() is None:
            return False
        self.close()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, str(self.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        return True

    def _line(self, timeout_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        stdout, deadline, parts = self._process.stdout, time.monotonic() + timeout_s, b""
        while not parts.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                self.close()
                raise ChildLost("timeout", f"no answer within {timeout_s:.3g} s: killed")
            piece = os.read(stdout.fileno(), 1 << 16)
            if not piece:
                raise self._lost()
            parts += piece
        return parts

    def _lost(self) -> ChildLost:
        """What is known of a child that died by itself."""
        assert self._process is not None
        code = self._process.wait()
        ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = ""
        if self._errors is not None:
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - STDERR_KEPT_BYTES))
            said = self._errors.read().decode(errors="replace").strip()
        self.close()
        return ChildLost("crashed", f"{ended}; it said: {said[-1000:]}" if said else ended)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _close_quietly(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        return
