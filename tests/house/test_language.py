"""Prose is idiomatic technical English: a short list of words that the project used to have for things that
the field names otherwise, and the word to use instead. Identifiers are checked for the words that have no
other meaning there.
"""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTEAD = {
    "anew": "again, or recreated",
    "whoever": "any caller, or the client that",
    "somebody": "another controller, or another client",
    "for ever": "forever",
    "at rest": "idle",
    "is to": "must",
    "are to": "must",
    "is told": "is reported",
    "are told": "are reported",
    "roll call": "watch check",
    "keeps its seat": "keeps its membership",
    "asked for": "requested",
}
WORDS = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in INSTEAD) + r")\b", re.IGNORECASE)
PRODUCT = ("loghub", "operator", "worker")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs", "charts", "crds", "deploy", "Dockerfile", "Makefile")


def tracked(*paths: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, check=True)
    return [path for name in listed.stdout.decode().split() if (path := ROOT / name).exists()]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line numbers and texts of the comments and strings of a Python module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def found_in(text: str) -> list[str]:
    return [" ".join(match[1].lower().split()) for match in WORDS.finditer(text)]


def modules() -> list[Path]:
    return [path for path in tracked(*PRODUCT) if path.suffix == ".py"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_uses_the_terms_of_the_field(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}; write {INSTEAD[word]}"
        for line, text in prose(path.read_text(encoding="utf-8"))
        for word in found_in(text)
    ]
    assert found == []


def test_documents_and_manifests_use_the_terms_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word!r}; write {INSTEAD[word]}"
        for path in tracked(*DOCUMENTS)
        for word in found_in(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_words_match_across_a_line_break_and_not_inside_other_words() -> None:
    assert found_in("It is made\nanew by somebody\n    else.") == ["anew", "somebody"]
    assert found_in("renewed, retold, threshold") == []
