"""The rows beyond the nine of docs/shard-states.md are in docs/decisions/domain.md, each with its reason."""

import re
from pathlib import Path

from loghub.domain.fsm import EDGES

PAGE = Path(__file__).parents[3] / "docs" / "decisions" / "domain.md"


def test_every_row_from_10_on_has_its_reason_there_and_no_other_has() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(?:[^|]*\|){3} ([^|]+) \|$", page, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == sorted({e.number for e in EDGES if e.number >= 10})
    assert all(len(reason) > 20 for _, reason in rows)
