"""Every story in this folder comes out as written.

``LOGHUB_REWRITE_SCENARIOS=1`` writes what really came out into the files instead; commit a
changed expectation only when you can explain it. The language is in `script`.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.script import parse, render, replay

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("LOGHUB_REWRITE_SCENARIOS") == "1"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    assert written.startswith("# "), "a story opens with its intent"
    happened = render(replay(parse(written)))
    if REWRITE:
        path.write_text(happened, encoding="utf-8")
    else:
        assert happened == written


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 12


def test_a_scenario_with_a_wrong_expectation_fails() -> None:
    scenario = "group shards=0 timeout=30 order=false\nheartbeat a\n----\nanswer: none\n"
    assert "answer: 0" in render(replay(parse(scenario)))


def test_a_block_without_dashes_is_refused() -> None:
    with pytest.raises(ValueError, match="heartbeat a"):
        parse("heartbeat a")
