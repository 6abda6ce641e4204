"""The pages in Chinese are of the present state of their sources, and have the same structure."""

import re

import pytest

from tests.house.translations import Translation, translations

ALL = translations()
BLOCK = re.compile(r"^ *```\n?(.*?)^ *```", re.MULTILINE | re.DOTALL)
HOW = "translate what changed, and run: python -m tests.house.translations {}"


def shape(text: str) -> dict[str, object]:
    """What a translation keeps: the levels of headings, the blocks, the rows of tables, and the code."""
    prose = BLOCK.sub("", text)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)],
        "blocks": BLOCK.findall(text),
        "rows": len(re.findall(r"^\|", text, re.MULTILINE)),
        "items": len(re.findall(r"^ *(?:-|\d+\.) ", text, re.MULTILINE)),
        "code": sorted({" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)}),
    }


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.path.stem)
def test_a_translation_is_of_the_present_source(page: Translation) -> None:
    assert not page.is_stale, HOW.format(page.path.name)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.path.stem)
def test_a_translation_has_the_structure_of_its_source(page: Translation) -> None:
    assert shape(page.text) == shape(page.source.read_text(encoding="utf-8"))
