"""``python -m tests.house.translations [PAGE ..]``: says which pages in Chinese are older than
their sources; of each PAGE that is named it notes that it now is of the present source.

A page of ``docs/zh/`` begins with a comment that has the path of its source and the beginning of its hash.
"""

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "zh"
HEX = 12  # digits of a hash: enough that no change goes unnoticed by chance
_HEAD = re.compile(r"\A<!-- Translation of (?P<source>\S+), sha256 (?P<hash>[0-9a-f]+)\. -->\n\n")


@dataclass(frozen=True, slots=True)
class Translation:
    """A page of ``docs/zh/`` without its first comment, and the page that it is of."""

    path: Path
    source: Path
    of: str  # the beginning of the hash of the source that was translated
    text: str

    @property
    def is_stale(self) -> bool:
        return self.of != beginning_of_hash(self.source)


def beginning_of_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:HEX]


def translations() -> list[Translation]:
    """All pages. Raises ValueError for a page that does not say what it is of."""
    return [_read(path) for path in sorted(FOLDER.glob("*.md"))]


def _read(path: Path) -> Translation:
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    if head is None:
        raise ValueError(f"{path} does not begin with the source that it is of")
    return Translation(path, ROOT / head["source"], head["hash"], text[head.end() :])


def mark(translation: Translation) -> None:
    """Write that the translation is of its present source."""
    source = translation.source.relative_to(ROOT).as_posix()
    head = f"<!-- Translation of {source}, sha256 {beginning_of_hash(translation.source)}. -->\n\n"
    translation.path.write_text(head + translation.text, encoding="utf-8")


def main(names: list[str]) -> None:
    for one in translations():
        if one.path.name in names:
            mark(one)
        elif one.is_stale:
            print(f"{one.path.relative_to(ROOT)} is older than {one.source.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
