"""JAX's persistent compilation cache: a second process hits, and never another program's entry."""

import subprocess
import sys

import pytest

# Each is compiled by a first process. The last of each pair differs from its brother only in what
# a key could miss.
FIRST = ["one_device", "fused_tanh", "explicit", "shard_map", "automatic", "automatic_tanh"]
SECOND = [*FIRST, "fused_silu", "automatic_silu"]


def run(folder, names) -> dict[str, tuple[int, int, bool]]:
    command = [sys.executable, "-m", "tests.ops.cached_programs", str(folder), *names]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {name: (int(hits), int(misses), right == "True") for name, hits, misses, right in rows}


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    first = run(folder, FIRST)
    assert all(right for _, _, right in first.values()), first
    return run(folder, SECOND)


@pytest.mark.parametrize("name", FIRST)
def test_a_second_process_finds(second, name: str) -> None:
    hits, misses, right = second[name]
    assert right
    assert (hits >= 1, misses) == (True, 0)


@pytest.mark.parametrize("name", ["fused_silu", "automatic_silu"])
def test_a_program_that_differs_in_a_static_is_another(second, name: str) -> None:
    _, misses, right = second[name]
    assert right
    assert misses >= 1
