"""What the README shows is what the code says."""

import re
from pathlib import Path

from loghub.domain.fsm import mermaid

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_of_the_shard_states_is_made_from_the_table() -> None:
    assert f"```mermaid\n{mermaid()}```" in README, "paste the output of loghub.domain.fsm.mermaid()"


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_goal_named_exists() -> None:
    goals = set(re.findall(r"\bmake ([a-z-]+)", README))
    makefile = (ROOT / "Makefile").read_text()
    assert goals >= {"demo", "test"}
    assert [goal for goal in goals if not re.search(rf"^{goal}:", makefile, re.MULTILINE)] == []


def test_no_placeholder_is_left() -> None:
    assert re.findall(r"@@\w*|TODO|FIXME", README) == []
