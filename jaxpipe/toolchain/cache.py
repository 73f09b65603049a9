"""The kernel cache: one file a kernel, named by the hash of all that decides the binary.

In: a key and `Binaries`. Out: the same again later. A file is written under a temporary name in
its own directory, synced and renamed, so readers and other writers never see a part of it; a file
that is cut, changed or not ours reads as absent and is replaced. A cache that cannot be written
costs time and is never an error.

File: magic, 32 bytes SHA-256 of the rest, 8 bytes header length, JSON header, zlib PTX, cubin.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import time
import zlib
from dataclasses import asdict, dataclass

from jaxpipe import files
from jaxpipe.kernel import Resources
from jaxpipe.toolchain.binaries import Binaries

MAGIC = b"jaxpipe kernel 1\n"
SUFFIX = ".jpk"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8
_STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A directory of compiled kernels; created at the first store."""

    directory: pathlib.Path

    def path(self, key: str) -> pathlib.Path:
        """Where the kernel of `key` lies or would lie."""
        return self.directory / "kernels" / key[:2] / (key + SUFFIX)

    def load(self, key: str) -> Binaries | None:
        """The binaries of `key`, or None when absent, unreadable, corrupt or of another key."""
        try:
            return decode(key, self.path(key).read_bytes())
        except (OSError, ValueError, KeyError, TypeError, zlib.error):
            return None

    def store(self, key: str, binaries: Binaries) -> bool:
        """Keep `binaries` under `key`; False when the directory cannot be written."""
        return keep(self.path(key), encode(key, binaries))


def keep(path: pathlib.Path, data: bytes) -> bool:
    """Write `data` whole and sweep its folder; False when that cannot be: a cache is no promise."""
    try:
        files.write_whole(path, data)
    except OSError:
        return False
    _sweep(path.parent)
    return True


def _sweep(folder: pathlib.Path) -> None:
    """Remove what writers that died long ago left in `folder`; never what one may still write."""
    for path in folder.glob(files.TEMPORARY + "*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()


def encode(key: str, binaries: Binaries) -> bytes:
    """The file's bytes."""
    ptx = zlib.compress(binaries.ptx.encode(), 1)
    header = {
        "key": key,
        "compiler": binaries.compiler,
        "log": binaries.log,
        "ptx_bytes": len(ptx),
        "resources": [asdict(r) for r in binaries.resources],
    }
    head = json.dumps(header, sort_keys=True).encode()
    body = len(head).to_bytes(_LENGTH_BYTES, "little") + head + ptx + binaries.cubin
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(key: str, data: bytes) -> Binaries:
    """The binaries in a file's bytes; ValueError when they are not the kernel of `key`."""
    if not data.startswith(MAGIC):
        raise ValueError("not a jaxpipe kernel file")
    digest, body = data[len(MAGIC) :][:_DIGEST_BYTES], data[len(MAGIC) + _DIGEST_BYTES :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("kernel file is damaged")
    split = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "little")
    header = json.loads(body[_LENGTH_BYTES:split])
    if header["key"] != key:
        raise ValueError(f"kernel file holds key {header['key']}")
    end = split + header["ptx_bytes"]
    return Binaries(
        ptx=zlib.decompress(body[split:end]).decode(),
        cubin=body[end:],
        resources=tuple(
            Resources(**{**r, "diagnostics": tuple(r["diagnostics"])}) for r in header["resources"]
        ),
        log=header["log"],
        compiler=header["compiler"],
    )
