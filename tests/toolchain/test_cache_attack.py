"""The kernel cache under attack: many processes, sudden death, damage, full disks."""

import contextlib
import functools
import hashlib
import multiprocessing
import os
import pathlib
import random
import resource
import signal
import time

import pytest

from jaxpipe.kernel import Resources
from jaxpipe.toolchain.binaries import Binaries
from jaxpipe.toolchain.cache import SUFFIX, KernelCache

# Children are forked from a small server without threads, so that they start in milliseconds and
# most kills hit them at work.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([__name__])
PROCESSES, KILLS, LOOKUPS = 16, 48, 100
KEYS = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(50)]


@functools.cache
def kernel(key: str) -> Binaries:
    """What compiling `key` gives: bytes that only this key has, up to 300 KB."""
    rng = random.Random(key)
    cubin = key.encode() + rng.randbytes(rng.randrange(1_000, 300_000))
    resources = (Resources(key, 64, 0, 0, 1024, ("C7508",)),)
    return Binaries(f"// {key}\n" * 500, cubin, resources, f"log of {key}", "test 1.0")


def use_cache(directory: pathlib.Path, seed: int) -> None:
    """Look kernels up in random order and store what is missing; dies loudly on a wrong one."""
    cache, rng = KernelCache(directory), random.Random(seed)
    for _ in range(LOOKUPS):
        key = rng.choice(KEYS)
        found = cache.load(key)
        if found is None:
            cache.store(key, kernel(key))
        elif found != kernel(key):
            os._exit(3)
    os._exit(0)


def start(directory: pathlib.Path, seed: int):
    process = SERVER.Process(target=use_cache, args=(directory, seed))
    process.start()
    return process


def files(directory: pathlib.Path) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Kernel files, and whatever else lies about."""
    every = [path for path in directory.rglob("*") if path.is_file()]
    return [p for p in every if p.suffix == SUFFIX], [p for p in every if p.suffix != SUFFIX]


@pytest.mark.slow
def test_sixteen_processes_and_random_kills_leave_no_bad_entry(tmp_path) -> None:
    rng = random.Random(0)
    running = [start(tmp_path, seed) for seed in range(PROCESSES)]
    finished, killed, seed = [], 0, 100
    while running:
        time.sleep(rng.uniform(0.0, 0.03))
        if killed < KILLS and any(tmp_path.rglob("*")):
            victim = rng.choice(running)
            with contextlib.suppress(ProcessLookupError):
                victim.kill()
            victim.join()
            running.remove(victim)
            if victim.exitcode == -signal.SIGKILL:
                killed, seed = killed + 1, seed + 1
                running.append(start(tmp_path, seed))
            else:
                finished.append(victim)
        for process in [p for p in running if not p.is_alive()]:
            running.remove(process)
            finished.append(process)
    assert killed == KILLS
    assert {process.exitcode for process in finished} == {0}
    kernels, _ = files(tmp_path)
    assert sorted(path.stem for path in kernels) == sorted(KEYS)
    cache = KernelCache(tmp_path)
    assert all(cache.load(key) == kernel(key) for key in KEYS)


def test_the_leavings_of_dead_writers_are_swept_up(tmp_path) -> None:
    cache, key = KernelCache(tmp_path), KEYS[0]
    folder = cache.path(key).parent
    folder.mkdir(parents=True)
    old, young = folder / ".tmp-old", folder / ".tmp-young"
    old.write_bytes(b"half a kernel")
    young.write_bytes(b"somebody is writing this now")
    os.utime(old, (time.time() - 86_400,) * 2)
    assert cache.store(key, kernel(key))
    assert files(tmp_path)[1] == [young]


def damage_cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damage_bit(data: bytes) -> bytes:
    return data[:-7] + bytes([data[-7] ^ 1]) + data[-6:]


def damage_header_length(data: bytes) -> bytes:
    at = data.index(b"kernel 1\n") + 9 + 32
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


DAMAGES = {
    "empty": lambda data: b"",
    "cut": damage_cut,
    "one bit": damage_bit,
    "zeros": lambda data: bytes(len(data)),
    "header length": damage_header_length,
    "appended": lambda data: data + b"\0",
    "another version": lambda data: data.replace(b"kernel 1\n", b"kernel 0\n", 1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_reads_as_absent_and_is_replaced(tmp_path, name) -> None:
    cache, key = KernelCache(tmp_path), KEYS[1]
    assert cache.store(key, kernel(key))
    cache.path(key).write_bytes(DAMAGES[name](cache.path(key).read_bytes()))
    assert cache.load(key) is None
    assert cache.store(key, kernel(key))
    assert cache.load(key) == kernel(key)


def test_another_kernels_file_under_this_name_reads_as_absent(tmp_path) -> None:
    cache = KernelCache(tmp_path)
    cache.store(KEYS[2], kernel(KEYS[2]))
    cache.path(KEYS[3]).parent.mkdir(parents=True, exist_ok=True)
    cache.path(KEYS[2]).rename(cache.path(KEYS[3]))
    assert cache.load(KEYS[3]) is None


@contextlib.contextmanager
def file_size_limit(size: int):
    """Writes beyond `size` bytes fail with EFBIG, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_costs_the_entry_and_leaves_nothing(tmp_path) -> None:
    cache, key = KernelCache(tmp_path), KEYS[4]
    with file_size_limit(512):
        assert cache.store(key, kernel(key)) is False
    assert cache.load(key) is None
    assert files(tmp_path) == ([], [])


def test_a_directory_that_is_a_file_is_no_error(tmp_path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("not a directory")
    cache = KernelCache(blocked)
    assert cache.load(KEYS[5]) is None
    assert cache.store(KEYS[5], kernel(KEYS[5])) is False


def test_a_directory_where_the_file_should_be_is_no_error(tmp_path) -> None:
    cache = KernelCache(tmp_path)
    cache.path(KEYS[6]).mkdir(parents=True)
    assert cache.load(KEYS[6]) is None
    assert cache.store(KEYS[6], kernel(KEYS[6])) is False
    assert files(tmp_path) == ([], [])
