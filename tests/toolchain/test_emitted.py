"""Emitted sources are remembered between processes, and never of other emitters than these."""

import ast
import pathlib
import shutil

import pytest

from jaxpipe import compiler, emitted
from jaxpipe.emitted import EmittedKernels
from jaxpipe.epilogue import Epilogue
from jaxpipe.kernel import Kernel
from jaxpipe.problem import Conv2d, Matmul, Problem
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import arch

SMALL = GpuSchedule(block_m=16, block_n=16, block_k=16, warps_m=1, warps_n=1, smem_stages=2)
HOPPER = GpuSchedule.parse("family=hopper,block_m=128,block_n=128,block_k=64,consumers=2")
CASES: tuple[tuple[Problem, GpuSchedule, str], ...] = (
    (Matmul(64, 48, 96, epilogue=Epilogue(alpha=0.1, bias="row")), SMALL, "sm_80"),
    (Matmul(64, 48, 96), GpuSchedule.parse("split_k=3", SMALL), "sm_89"),
    (Conv2d(1, 8, 8, 16, 16, (3, 3)), SMALL, "sm_86"),
    (Matmul(512, 512, 512, dtype="float16"), HOPPER, "sm_90a"),
    (Matmul(0, 48, 96), SMALL, "sm_80"),
)


def stored(directory: pathlib.Path, case: tuple[Problem, GpuSchedule, str]) -> Kernel:
    problem, schedule, name = case
    kernel = compiler.emit_kernel(problem, schedule, arch(name))
    assert EmittedKernels(directory).store(kernel, arch(name))
    return kernel


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_what_is_read_back_equals_what_was_emitted(tmp_path: pathlib.Path, case) -> None:
    kernel = stored(tmp_path, case)
    problem, schedule, name = case
    assert EmittedKernels(tmp_path).load(problem, schedule, arch(name)) == kernel


@pytest.mark.parametrize("field", [0, 1, 2])
def test_another_problem_schedule_or_target_finds_nothing(tmp_path, field: int) -> None:
    stored(tmp_path, CASES[0])
    wanted = list(CASES[0])
    wanted[field] = (Matmul(64, 48, 97), GpuSchedule(), "sm_86")[field]
    problem, schedule, name = wanted
    assert EmittedKernels(tmp_path).load(problem, schedule, arch(name)) is None


@pytest.mark.parametrize("position", [0, 100, -2])
def test_a_damaged_file_is_emitted_anew(tmp_path: pathlib.Path, position: int) -> None:
    stored(tmp_path, CASES[0])
    problem, schedule, name = CASES[0]
    path = EmittedKernels(tmp_path).path(problem, schedule, arch(name))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert EmittedKernels(tmp_path).load(problem, schedule, arch(name)) is None


@pytest.mark.parametrize("file", ["codegen/device/ldmatrix.cuh", "transform/tile.py", "target.py"])
def test_the_digest_follows_every_file_of_the_emitters(tmp_path, file: str) -> None:
    package = tmp_path / "jaxpipe"
    skip = shutil.ignore_patterns("*.so", "__pycache__", "data")
    shutil.copytree(emitted.PACKAGE, package, ignore=skip)
    assert emitted.generator_digest(package) == emitted.generator_digest()
    with (package / file).open("a") as changed:
        changed.write("\n")
    assert emitted.generator_digest(package) != emitted.generator_digest()


def test_emitters_edited_since_their_import_store_nothing(tmp_path, monkeypatch) -> None:
    kernel = stored(tmp_path, CASES[0])
    monkeypatch.setattr(emitted, "generator_digest", lambda: "edited")
    assert not EmittedKernels(tmp_path / "other").store(kernel, arch("sm_80"))
    assert not (tmp_path / "other").exists()


def imports(path: pathlib.Path) -> set[str]:
    """Files of the package that `path` imports, as the digest names them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxpipe"):
            names = [node.module] + [f"{node.module}.{a.name}" for a in node.names]
            files = (emitted.PACKAGE.parent / (n.replace(".", "/") + ".py") for n in names)
            found |= {f.relative_to(emitted.PACKAGE).as_posix() for f in files if f.exists()}
    return found


def test_the_digest_covers_all_that_the_emitters_import() -> None:
    entry = ("codegen/ampere.py", "codegen/hopper.py", "transform/recipe.py")
    waiting, seen = {*entry, "transform/recipe_hopper.py", "legality.py"}, set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= imports(emitted.PACKAGE / name) - seen
    covered = {p.relative_to(emitted.PACKAGE).as_posix() for p in emitted._files(emitted.PACKAGE)}
    assert len(seen) > 30
    assert seen <= covered


def test_the_second_process_does_not_emit(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("JAXPIPE_CACHE_DIR", str(tmp_path))
    first = compiler.compile_kernel(Matmul(20, 16, 16), SMALL, "a100")
    for cached in (compiler._kernel, compiler._compiled, compiler.emit_kernel):
        cached.cache_clear()
    monkeypatch.setattr(compiler, "emit_kernel", lambda *_: pytest.fail("emitted again"))
    again = compiler.compile_kernel(Matmul(20, 16, 16), SMALL, "a100")
    assert (again.kernel, again.cubin, again.compile_s) == (first.kernel, first.cubin, 0.0)
