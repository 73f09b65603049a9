"""The child's side of isolated.py: read a JSON line, answer with one, until the input ends.

Answers go to the original standard output, which nothing else can reach: prints of libraries are
sent to standard error. The child dies with its parent.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[Mapping[str, Any]], Any]


def serve(handle: Handler) -> None:
    """Answer every line of standard input by `handle`; the first argument limits memory (bytes)."""
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(handle(json.loads(line))), file=answers, flush=True)
