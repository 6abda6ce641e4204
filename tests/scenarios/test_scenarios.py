"""Every story in this folder comes out as written.

``LOGHUB_REWRITE_SCENARIOS=1`` writes what really came out into the files instead; commit a
changed expectation only when you can explain it. The language is in `script`.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.script import parse, render, replay

FOLDER = Path(__file__).parent
STORIES = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("LOGHUB_REWRITE_SCENARIOS") == "1"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    assert written.startswith("# "), "a story opens with its intent"
    happened = render(replay(parse(written)))
    if REWRITE:
        path.write_text(happened, encoding="utf-8")
    else:
        assert happened == written


def test_there_are_stories() -> None:
    assert len(STORIES) >= 12


def test_a_wrong_expectation_is_seen() -> None:
    story = "group shards=0 timeout=30 order=false\nbeat a\n----\nanswer: none\n"
    assert "answer: 0" in render(replay(parse(story)))


def test_a_block_without_dashes_is_refused() -> None:
    with pytest.raises(ValueError, match="beat a"):
        parse("beat a")
