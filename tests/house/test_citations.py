"""Every citation of a page can be opened: the page exists, and so does the section that is named.

Code cites a page of ``docs/`` by its path and section numbers, such as ``docs/sls-protocol.md 2.1, 2.3`` or
``docs/spark.md 2 to 4``, or by an anchor (``docs/glossary.md#kafka``). Markdown files link relatively.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_tree import ROOT, text_of, tracked_files

# A line break, with the comment sign of the next line, may come between a page and its section.
GAP = r"(?:[ \t]|\n[ \t]*(?:#|//)?[ \t]*)+"
NUMBER = r"\d+(?:\.\d+)*"
MKDOCS = Path("mkdocs.yml")  # names pages by their paths in the site
PAGE = r"(?P<page>docs/(?:[\w-]+/)*[\w-]+\.md|CONTRIBUTING\.md)"
SECTIONS = rf"{GAP}(?P<sections>{NUMBER}(?:(?:,|,? and|,? to){GAP}{NUMBER})*)(?!\w)"
CITATION = re.compile(rf"(?<![\w/.-]){PAGE}(?:#(?P<anchor>[\w-]+)|{SECTIONS})?")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([\w-]+))?\)")
PACKAGES = {
    folder.name: folder
    for parent in (".", "service", "worker", "operator")
    for folder in (ROOT / parent).glob("loghub*")
    if (folder / "__init__.py").is_file()
}
MODULE_NAME = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.[a-zA-Z_]\w*)+)`")
FILES_OF_OTHERS = {"version.py", "logclient.py"}  # of the vendor's SDK
NO_MODULE = {"loghub.form"}  # the setting of a topic
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def headings(page: Path) -> list[str]:
    return HEADING.findall(CODE_BLOCK.sub("", text_of(page)))


@cache
def numbers(page: Path) -> frozenset[str]:
    result = [re.match(rf"{NUMBER}(?= )", heading) for heading in headings(page)]
    return frozenset(number[0] for number in result if number)


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them of headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(page))
    return frozenset(heading.replace(" ", "-") for heading in plain)


def dead_citations(text: str) -> Iterator[str]:
    """What is cited in the text and cannot be opened."""
    for cited in CITATION.finditer(text):
        page = ROOT / cited["page"]
        if not page.is_file():
            yield f"{cited['page']}: no such page"
            continue
        for number in re.findall(NUMBER, cited["sections"] or ""):
            if number not in numbers(page):
                yield f"{cited['page']}: no section {number}"
        if cited["anchor"] and cited["anchor"] not in anchors(page):
            yield f"{cited['page']}: no heading #{cited['anchor']}"


def dead_links(page: Path, text: str) -> Iterator[str]:
    """Relative links of a Markdown file that lead nowhere."""
    for target, anchor in LINK.findall(text):
        file = page.parent / target if target else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no heading #{anchor}"


def of_all_files(suffix: str = "") -> Iterator[tuple[Path, str]]:
    for path in tracked_files():
        if path.name.endswith(suffix) and path != Path(__file__):
            yield path.relative_to(ROOT), text_of(path)


def test_every_citation_of_a_page_resolves() -> None:
    assert [f"{path}: {dead}" for path, text in of_all_files() for dead in dead_citations(text)] == []


def test_every_relative_link_resolves() -> None:
    dead = [f"{path}: {link}" for path, text in of_all_files(".md") for link in dead_links(ROOT / path, text)]
    assert dead == []


def linked_pages(page: Path) -> Iterator[Path]:
    for target, _ in LINK.findall(text_of(page)):
        if target.endswith(".md"):
            yield (page.parent / target).resolve()


def test_every_page_is_reachable_by_links_from_readme() -> None:
    """A page that no link leads to is read by nobody."""
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += linked_pages(page)
    pages = {ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []


def test_code_cites_a_page_by_its_path() -> None:
    """A bare file name cannot be opened, and escapes the check above. Links of Markdown are exempt."""
    names = "|".join(sorted(re.escape(page.name) for page in (ROOT / "docs").rglob("*.md")))
    bare = re.compile(rf"(?<![\w/.(-])(?:{names})(?![\w\"])")
    hits = [
        f"{path}: {result[0]}"
        for path, text in of_all_files()
        if path.suffix != ".md" and path != MKDOCS
        for result in bare.finditer(text)
    ]
    assert hits == []


def unknown_modules(text: str) -> Iterator[str]:
    """Names in backticks that begin with a package of ours, and are neither a module nor defined in one."""
    for name in MODULE_NAME.findall(text):
        if name in NO_MODULE:
            continue
        top, *parts = name.split(".")
        folder, source = PACKAGES[top], ""
        while parts and (folder / parts[0]).is_dir():
            folder = folder / parts.pop(0)
        if parts and (folder / f"{parts[0]}.py").is_file():
            source = text_of(folder / f"{parts.pop(0)}.py")
        elif (folder / "__init__.py").is_file():
            source = text_of(folder / "__init__.py").rpartition('"""')[2]  # without its docstring
        if parts and not re.search(rf"\b{parts[0]}\b", source):
            yield name


def test_every_module_that_is_named_in_backticks_exists() -> None:
    """A module that has moved leaves its old name in the prose of others, where no import fails."""
    files = ((path, text) for path, text in of_all_files() if path.suffix in {".md", ".py"})
    assert [f"{path}: {name}" for path, text in files for name in unknown_modules(text)] == []


def test_every_file_that_a_page_names_exists() -> None:
    """By its path, or by the end of it: the tables of docs/testing.md leave out the package."""
    paths = {str(path.relative_to(ROOT)) for path in tracked_files()}
    ends = {path[start.end() :] for path in paths for start in re.finditer("^|/", path)} | FILES_OF_OTHERS
    dead = [
        f"{page}: {name}"
        for page, text in of_all_files(".md")
        for name in re.findall(r"`([\w./-]+\.(?:py|rs))(?:::\w+)?`", text)
        if name not in ends
    ]
    assert dead == []


def test_every_file_that_the_makefile_names_exists() -> None:
    """What only `make demo` or a first `make setup` runs is missed by no other test."""
    folders = {path.relative_to(ROOT).parts[0] for path in tracked_files() if path.parent != ROOT}
    named = set(
        re.findall(
            rf"(?<![\w./-])(?:{'|'.join(map(re.escape, folders))})/[\w./-]+\.\w+", text_of(ROOT / "Makefile")
        )
    )
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_section_numbers_of_a_page_are_unique() -> None:
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        result = [match[0] for text in headings(page) if (match := re.match(rf"{NUMBER}(?= )", text))]
        assert len(result) == len(set(result)), page.name


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("see docs/sls-protocol.md 2.1 and 4.", []),
        ("see docs/sls-protocol.md 2.1, 2.3, 5 seconds", []),
        ("# (docs/sls-protocol.md\n# 1.1). What", []),
        ("docs/shard-states.md 2, edge 99", []),
        ("docs/glossary.md#kafka", []),
        ("https://example.com/docs/missing.md", []),
        ("docs/missing.md 1", ["docs/missing.md: no such page"]),
        ("(docs/sls-protocol.md 2.99)", ["docs/sls-protocol.md: no section 2.99"]),
        ("docs/sls-protocol.md 2.1, 2.98 and\n    # 99)", ["2.98", "99"]),
        ("docs/spark.md 1 to 42", ["docs/spark.md: no section 42"]),
        ("docs/glossary.md#nothing", ["docs/glossary.md: no heading #nothing"]),
    ],
)
def test_a_dead_citation_is_detected(text: str, dead: list[str]) -> None:
    result = list(dead_citations(text))
    assert len(result) == len(dead)
    assert all(expected in said for expected, said in zip(dead, result, strict=True))


def test_a_dead_link_is_detected() -> None:
    page = ROOT / "docs" / "glossary.md"
    text = "[a](spark.md) [b](missing.md) [c](#kafka) [d](spark.md#nothing) [e](https://example.com/x.md)"
    assert list(dead_links(page, text)) == ["missing.md: no such file", "spark.md: no heading #nothing"]
