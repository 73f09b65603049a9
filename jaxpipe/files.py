"""Files that readers see whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

TEMPORARY = ".tmp-"


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Replace `path` by `data`, creating its directory; OSError when it cannot be, and no trace.

    A temporary file in the same directory (its name begins with TEMPORARY), synced and renamed:
    neither a crash nor another writer leaves a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
