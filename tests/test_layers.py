"""The layer table: a file imports only from a lower level, or from above it in its own."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "jaxpipe"

# Order inside a level is order of permission: a file may import those before it.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors", "settings", "command_line", "files", "_native", "version"),
    (
        "target",
        "dtypes",
        "epilogue",
        "problem",
        "schedule",
        "kernel",
        "dynamic",
        "wgmma",
        "geometry_hopper",
        "legality_hopper",
        "legality_ampere",
        "legality",
        "records",
        "keys",
    ),
    ("ptx", "ir", "model", "space", "tuned", "residual", "toolchain"),
    ("transform",),
    ("codegen",),
    ("choose", "emitted", "compiler"),
    ("runtime",),
    ("ops",),
    ("rewrite", "accelerate", "flax", "tune"),
    (
        "explain_report",
        "explain_plot",
        "explain",
        "doctor",
        "cli_emit",
        "cli_check",
        "cli_tune",
        "cli",
        "__main__",
    ),
)
ONLY_IN = {
    "jax": {
        "runtime",
        "ops",
        "rewrite",
        "accelerate",
        "flax",
        "tune",
        "explain",
        "doctor",
        "cli",
        "__init__",
        "__main__",
    },
    "optuna": {"tune"},
    "subprocess": {"toolchain", "tune", "doctor"},
    "ctypes": {"toolchain"},
}
# What is loaded by name when first needed, where an import would be upward: file -> module.
DEFERRED = {"ops/executors.py": "jaxpipe.tune.on_miss"}
RANK = {name: (level, i) for level, row in enumerate(LEVELS) for i, name in enumerate(row)}
FILES = sorted(PACKAGE.rglob("*.py"))


def top(path: pathlib.Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: pathlib.Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_from_below(path: pathlib.Path) -> None:
    here = top(path)
    if here == "__init__":
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "jaxpipe" and len(parts) > 1 and parts[1] != here:
            assert parts[1] in RANK, f"{path.name} imports {name}: not in the layer table"
            assert RANK[parts[1]] < RANK[here], f"{path.name} ({here}) must not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_library_is_imported_only_in_its_place(path: pathlib.Path) -> None:
    for name in imports(path):
        allowed = ONLY_IN.get(name.split(".")[0])
        assert allowed is None or top(path) in allowed, f"{path.name} must not import {name}"
        assert "jax._src" not in name, f"{path.name} imports private {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_listed_modules_are_loaded_by_name(path: pathlib.Path) -> None:
    calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
    loads = [c for c in calls if getattr(c.func, "attr", "") in ("import_module", "__import__")]
    named = [c.args[0].value for c in loads if isinstance(c.args[0], ast.Constant)]
    expected = DEFERRED.get(str(path.relative_to(PACKAGE)))
    assert named == ([expected] if expected else [])
    assert len(named) == len(loads) or top(path) in ("cli", "tune"), "a module named at run time"
