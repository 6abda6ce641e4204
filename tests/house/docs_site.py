"""``python -m tests.house.docs_site``: the docs as a site in build/docs/site, and as build/docs.zip.

The pages are those of docs/ with the README in front, changed where a site can do more than GitHub's view of
a file: links lead to pages of the site, or to copies of the files; the column that says which test shows a
row is folded away; the search leaves out what only maintainers read.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "mkdocs.yml"
OUT = ROOT / "build" / "docs"
ZIP = ROOT / "build" / "docs.zip"
# What is a page of the site, by the path in the repository, if it is not its path below docs/.
RENAMED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/README.md": "pages.md",
    "docs/decisions/README.md": "decisions/index.md",
    "docs/zh/README.md": "zh/index.md",
}
FILES = "files"  # with copies of the files to which pages link
NOT_SEARCHED = "Maintainers"  # the part of the navigation
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]*)(#[^)\s]*)?(?=\))")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")
SHOWN_BY = "shown by"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def sources() -> list[str]:
    """The Markdown files that become pages, as paths in the repository."""
    docs = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return [*docs, *(name for name in RENAMED if not name.startswith("docs/"))]


def page_of(source: str) -> str:
    """The page that a Markdown file becomes."""
    return RENAMED.get(source, source.removeprefix("docs/"))


def navigation(config: Any) -> Iterator[tuple[str, str]]:
    """Each page in the navigation of mkdocs.yml, with the part that it belongs to."""
    for part in config["nav"]:
        for name, entries in part.items():
            yield from ((page, name) for page in _pages(entries))


def _pages(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case list():
            for one in entry:
                yield from _pages(one)
        case dict():
            for one in entry.values():
                yield from _pages(one)


def site_text(source: str, text: str, *, is_searched: bool) -> tuple[str, set[str]]:
    """The text of a page, and the files of the repository that it links to."""
    files = set[str]()
    here = posixpath.dirname(page_of(source))

    def link(found: re.Match[str]) -> str:
        path, anchor = found[1], found[2] or ""
        if not path:
            return anchor
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target.endswith(".md"):
            return posixpath.relpath(page_of(target), here or ".") + anchor
        if target.startswith("docs/"):  # a picture, which lies next to the pages
            return posixpath.relpath(target.removeprefix("docs/"), here or ".")
        files.add(target)
        return posixpath.relpath(f"{FILES}/{target}", here or ".")

    body = _TABLE.sub(lambda found: _folded(found[0]), _LINK.sub(link, text))
    return (body if is_searched else f"---\nsearch:\n  exclude: true\n---\n\n{body}"), files


def _folded(table: str) -> str:
    """A table whose last column says which test shows a row: the column is below it, and closed at first."""
    rows = [_cells(line) for line in table.splitlines()]
    if rows[0][-1] != SHOWN_BY:
        return table
    kept = "".join(f"| {' | '.join(row[:-1])} |\n" for row in rows)
    shown = "".join(f"    | {row[0]} | {row[-1]} |\n" for row in rows)
    return f'{kept}\n??? note "{SHOWN_BY.capitalize()}"\n\n{shown}'


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.strip())[1:-1]]


def write_pages() -> None:
    """Copy the pages to build/docs/pages, with the files that they link to."""
    pages = OUT / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    part = dict(navigation(configuration()))
    for source in sources():
        page = page_of(source)
        searched = part.get(page) != NOT_SEARCHED
        text, files = site_text(source, (ROOT / source).read_text(encoding="utf-8"), is_searched=searched)
        (pages / page).parent.mkdir(parents=True, exist_ok=True)
        (pages / page).write_text(text, encoding="utf-8")
        _copy(files, pages / FILES)
    pictures = (path for path in (ROOT / "docs").rglob("*") if path.suffix in (".svg", ".png"))
    for picture in pictures:
        shutil.copy(picture, pages / picture.relative_to(ROOT / "docs"))


def _copy(files: Iterable[str], folder: Path) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, folder / name)


class _Loader(yaml.SafeLoader):
    """Reads the names of Python functions in mkdocs.yml as texts."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, _node: suffix)


def configuration() -> Any:
    """What mkdocs.yml says."""
    return yaml.load(CONFIG.read_text(encoding="utf-8"), _Loader)


def build() -> str:
    """Write the site, and return what the builder printed. Raises `SystemExit` with it for a broken link."""
    write_pages()
    shutil.rmtree(OUT / "site", ignore_errors=True)
    program = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    printed = _COLOR.sub("", ran.stdout + ran.stderr)
    if ran.returncode:
        raise SystemExit(printed)
    return printed


def main() -> None:
    build()
    shutil.make_archive(str(ZIP.with_suffix("")), "zip", OUT / "site")
    print(f"the docs are in {OUT.relative_to(ROOT)}/site, and in {ZIP.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
