"""The pages under docs/: their links lead somewhere, and the decisions keep their form."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DECISIONS = DOCS / "decisions"
PAGES = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
MAX_LINE = 100


def ids(path: Path) -> str:
    return str(path.relative_to(DOCS))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=ids)
def test_every_linked_file_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("folder", [DOCS, DECISIONS], ids=ids)
def test_the_index_of_a_folder_names_every_page(folder: Path) -> None:
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
    pages |= {f"{path.parent.name}/README.md" for path in folder.glob("*/README.md")}
    assert {name for name in pages if f"({name})" not in index} == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_an_entry_is_a_heading_that_states_the_decision_and_a_text(page: Path) -> None:
    title, *entries = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert title.startswith("# ")
    assert entries
    for entry in entries:
        heading, _, text = entry.partition("\n")
        assert len(heading.split()) >= 3, f"{heading!r} states no decision"
        assert len(text.split()) >= 5, f"{heading!r} has no reason"


@pytest.mark.parametrize("page", [*PAGES, DECISIONS / "README.md"], ids=ids)
def test_lines_are_wrapped(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    # A table's row cannot be wrapped.
    assert [line for line in lines if len(line) > MAX_LINE and not line.startswith("|")] == []


def test_every_test_that_the_page_of_tests_names_exists() -> None:
    """``test_file.py::test_name``; ``..`` stands for the rest of a name."""
    text = (DOCS / "testing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:[\w/]+/)?(test_\w+\.py)::((?:Test|test_)\w+)", text))
    assert len(named) > 50
    sources: dict[str, str] = {}
    for path in (DOCS.parent / "tests").rglob("test_*.py"):
        sources[path.name] = sources.get(path.name, "") + path.read_text(encoding="utf-8")
    missing = [
        f"{file}::{name}"
        for file, name in sorted(named)
        if not re.search(rf"^(?:(?:async )?(?:def|class) )?{name}", sources.get(file, ""), re.MULTILINE)
    ]
    assert missing == []
