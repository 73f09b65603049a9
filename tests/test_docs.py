"""The documents say what is true: every path that they name exists."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
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


def test_the_tables_of_the_readme_come_from_committed_rows() -> None:
    from benchmarks import report

    text = (ROOT / "README.md").read_text()
    assert "<!-- demo -->" in text
    assert report.fill(text) == text, "run python benchmarks/report.py"
