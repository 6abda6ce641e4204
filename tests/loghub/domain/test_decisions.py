"""The edges beyond the nine of docs/shard-states.md are explained in docs/decisions/domain.md."""

import re
from pathlib import Path

from loghub.domain.fsm import SHARD_STATES

PAGE = Path(__file__).parents[3] / "docs" / "decisions" / "domain.md"


def test_every_edge_from_10_on_is_explained_in_the_decisions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(?:[^|]*\|){3} ([^|]+) \|$", page, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == sorted(
        {e.number for e in SHARD_STATES.edges if e.number >= 10}
    )
    assert all(len(reason) > 20 for _, reason in rows)
