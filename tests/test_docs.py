"""The documents say what is true: every path that they name exists."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/compiler.md")
PATH = re.compile(
    r"`((?:jaxpipe|csrc|tests|tuning|benchmarks|docs)/[\w./-]*|[A-Z]\w+(?:\.md|\.txt)|Makefile|\.ci/run)`"
)


def named_paths(document: str) -> list[str]:
    return sorted(set(PATH.findall((ROOT / document).read_text())))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_in_a_document_exists(document: str) -> None:
    missing = [path for path in named_paths(document) if not (ROOT / path).exists()]
    assert missing == []


def test_the_check_finds_paths_at_all() -> None:
    assert len(named_paths("ARCHITECTURE.md")) > 20


@pytest.mark.parametrize(
    ("document", "block"),
    [
        ("README.md", "demo"),
        ("docs/compiler.md", "hopper_sass"),
        ("tuning/README.md", "samplers_host"),
        ("docs/host.md", "host_products"),
    ],
)
def test_the_tables_of_the_documents_come_from_committed_rows(document: str, block: str) -> None:
    from benchmarks import report

    text = (ROOT / document).read_text()
    assert f"<!-- {block} -->" in text
    assert ROOT / document in report.DOCUMENTS
    assert report.fill(text) == text, "run python benchmarks/report.py"
