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

ROOT = Path(__file__).parents[2]
INSTEAD = {
    "anew": "again, or recreated",
    "whoever": "any caller, or the client that",
    "somebody": "another controller, or another client",
    "someone else": "another controller, or another client",
    "for ever": "forever",
    "ever later": "later each time",
    "at rest": "idle",
    "is to": "must",
    "are to": "must",
    "told": "reported, or asked",
    "stood": "was, or existed",
    "beside": "next to, with, or besides",
    "mend": "correct",
    "mended": "corrected",
    "heir": "claimant, or successor",
    "footing": "prerequisites",
    "roll call": "watch check",
    "keeps its seat": "keeps its membership",
    "asked for": "requested",
}
# Parts of identifiers, such as `hub` in `close_hub`; those of a class such as `LogHub` are not split.
IN_NAMES = {
    "anew": "again",
    "heir": "claimant, or successor",
    "hub": "client, or log_service",
    "hubs": "clients",
    "mend": "correct",
    "mended": "corrected",
    "mends": "corrections",
    "seat": "membership",
    "somebody": "another",
    "told": "reported",
    "whoever": "any",
}
# Pronouns in place of nouns, in prose of the product: the reader has to look for what they stand for.
ELLIPSES = {
    r"those\s+of\b": "'those of'; name them again",
    r"that\s+of\b": "'that of'; name it again",
    r"the\s+same\s+for\b(?!\s+(?:all|each|every|the\s+same)\b)": "'the same for'; say what",
    r"wait(?:s|ing)?\s+for\s+news\b": "'wait for news'; long poll, or what has to happen",
    r'"""(?:It|That|Those|They)\b(?! which\b)': "a docstring that begins with a pronoun; name the noun",
    r"likewise\b": "'likewise'; say what",
    r'"""As (?!far|long|many|soon)': "a docstring that begins with a reference; say what it does",
}
ANY_ELLIPSIS = re.compile("|".join(ELLIPSES), re.IGNORECASE)
PRODUCT = ("loghub", "operator", "service", "worker")
WORDS = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in INSTEAD) + r")\b", re.IGNORECASE)
ANY_IN_NAMES = re.compile(r"(?<![^\W_])(" + "|".join(IN_NAMES) + r")(?![^\W_])", re.IGNORECASE)
CODE = ("loghub", "operator", "service", "worker", "tests")
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
    """Every module but this one, which lists the words."""
    return [path for path in tracked(*CODE) if path.suffix == ".py" and path != Path(__file__)]


def words_in_names(source: str) -> Iterator[tuple[int, str]]:
    """Line numbers and identifiers that contain one of the words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and IN_NAMES.keys() & set(token.string.lower().split("_")):
            yield token.start[0], token.string


def problems_of(source: str) -> Iterator[str]:
    """Lines with a word that has a better one. Few modules have one of the words at all, say in a name."""
    if WORDS.search(source):
        for line, text in prose(source):
            yield from (f"{line}: {word!r}; write {INSTEAD[word]}" for word in found_in(text))
    if ANY_IN_NAMES.search(source):
        yield from (f"{line}: {name}" for line, name in words_in_names(source))


def ellipses_of(source: str) -> Iterator[str]:
    """Ellipses in the prose of a module. Few modules have one anywhere, and only these are parsed."""
    for line, text in prose(source) if ANY_ELLIPSIS.search(source) else ():
        yield from (
            f"{line}: {advice}" for ellipsis, advice in ELLIPSES.items() if re.search(ellipsis, text, re.I)
        )


def test_modules_use_the_terms_of_the_field() -> None:
    """In one test: a thousand would take longer to be counted than to run."""
    problems = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in modules()
        for problem in problems_of(path.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_a_problem_is_found_in_a_comment_a_string_and_a_name_but_not_in_code() -> None:
    assert list(problems_of("x = 1\n# told\ny = 'made anew'\n_heir_ = told\n")) == [
        "2: 'told'; write reported, or asked",
        "3: 'anew'; write again, or recreated",
        "4: _heir_",
        "4: told",
    ]
    assert list(problems_of("threshold = stood = 1\n")) == []


def test_prose_of_the_product_names_its_nouns() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in tracked(*PRODUCT)
        if path.suffix == ".py"
        for problem in ellipses_of(path.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_an_ellipsis_is_found_in_prose_and_not_in_code() -> None:
    source = '"""As `walk`."""\nlikewise = 1  # the same for\n# that of b\nx = "Those  of a"\n# and those\n'
    assert [problem.split(";")[0] for problem in ellipses_of(source)] == [
        "1: a docstring that begins with a reference",
        "2: 'the same for'",
        "3: 'that of'",
        "4: 'those of'",
    ]
    assert list(ellipses_of("# the same for every shard\nlikewise = 1\n")) == []


def test_documents_and_manifests_use_the_terms_of_the_field() -> None:
    problems = [
        f"{path.relative_to(ROOT)}: {word!r}; write {INSTEAD[word]}"
        for path in tracked(*DOCUMENTS)
        for word in found_in(path.read_text(encoding="utf-8"))
    ]
    assert problems == []


def test_words_match_across_a_line_break_and_not_inside_other_words() -> None:
    assert found_in("It is made\nanew by somebody\n    else.") == ["anew", "somebody"]
    assert found_in("renewed, retold, threshold") == []


def test_a_word_is_detected_as_a_part_of_a_name_and_not_inside_one() -> None:
    assert list(words_in_names("_hub = told_once\nLogHub = github\n")) == [(1, "_hub"), (1, "told_once")]
