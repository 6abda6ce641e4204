"""The state machine (docs/shard-states.md 2): every state with every trigger, refusals included. The edges
beyond the nine of that page are explained in docs/decisions/domain.md.
"""

import itertools
import re
from pathlib import Path

import pytest

from loghub.domain.fsm import SHARD_STATES, ShardState, ShardTrigger, transition
from loghub.domain.table import IllegalTransition

EDGES = SHARD_STATES.edges

# Written out by hand from docs/shard-states.md 2 (1 to 9) and docs/decisions/domain.md (10 and up).
EXPECTED = {
    (None, "appeared"): (1, "not_alloc"),
    (None, "appeared_behind_ancestor"): (1, "wait"),
    ("wait", "ancestors_consumed"): (2, "not_alloc"),
    ("not_alloc", "assigned"): (3, "already_alloc"),
    ("already_alloc", "holder_timed_out"): (4, "not_alloc"),
    ("already_alloc", "moved_to_balance"): (5, "transfer"),
    ("transfer", "holder_released"): (6, "already_alloc"),
    ("transfer", "next_timed_out"): (6, "transfer"),
    ("over", "forced_back"): (7, "not_alloc"),
    ("already_alloc", "end_checkpointed"): (8, "over"),
    ("transfer", "holder_timed_out"): (9, "not_alloc"),
    ("wait", "nothing_left"): (10, "over"),
    ("not_alloc", "nothing_left"): (10, "over"),
    ("already_alloc", "nothing_left"): (10, "over"),
    ("transfer", "nothing_left"): (10, "over"),
    ("already_alloc", "holder_left"): (11, "not_alloc"),
    ("transfer", "holder_left"): (11, "not_alloc"),
    ("transfer", "next_left"): (11, "transfer"),
    ("wait", "order_dropped"): (12, "not_alloc"),
    ("transfer", "end_checkpointed"): (13, "over"),
    ("not_alloc", "end_checkpointed"): (14, "over"),
    ("wait", "end_checkpointed"): (14, "over"),
    ("transfer", "rebound"): (15, "transfer"),
}
STATES: list[ShardState | None] = [None, *ShardState]


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(STATES, ShardTrigger)))
def test_every_state_and_trigger(state: ShardState | None, trigger: ShardTrigger) -> None:
    expected = EXPECTED.get((state and state.value, trigger.value))
    if expected is not None:
        assert transition(state, trigger) == expected[1]
        return
    with pytest.raises(IllegalTransition) as refused:
        transition(state, trigger)
    assert str(state or "no state") in str(refused.value)
    assert trigger.value in str(refused.value)


def test_the_state_names_are_those_of_the_wire() -> None:
    assert set(ShardState) == {"not_alloc", "already_alloc", "wait", "transfer", "over"}


def test_each_row_has_a_number_and_a_reason() -> None:
    rows = {(e.old and e.old.value, e.trigger.value): (e.number, e.new.value) for e in EDGES}
    assert rows == EXPECTED
    assert len(EDGES) == len(EXPECTED)
    assert all(e.why for e in EDGES)
    assert [e.number for e in EDGES] == sorted(e.number for e in EDGES)


def test_every_trigger_has_a_row() -> None:
    assert {e.trigger for e in EDGES} == set(ShardTrigger)


def test_the_diagram_shows_every_row() -> None:
    diagram = SHARD_STATES.mermaid().splitlines()
    assert diagram[0] == "stateDiagram-v2"
    assert "    [*] --> wait: 1 appeared_behind_ancestor" in diagram
    assert "    over --> not_alloc: 7 forced_back" in diagram
    assert len(diagram) == len(EDGES) + 1


PAGE = Path(__file__).parents[3] / "docs" / "decisions" / "domain.md"


def test_every_edge_from_10_on_is_explained_in_the_decisions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|(?:[^|]*\|){3} ([^|]+) \|$", page, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == sorted(
        {e.number for e in SHARD_STATES.edges if e.number >= 10}
    )
    assert all(len(reason) > 20 for _, reason in rows)
