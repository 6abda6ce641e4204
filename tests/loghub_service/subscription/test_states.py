"""The table of a shard's states in a subscription is consistent, and the page shows it."""

from pathlib import Path

import pytest

from loghub.domain.subscription import SubscriptionState
from loghub.domain.table import IllegalTransition
from loghub_service.subscription import states
from loghub_service.subscription.states import CURSOR_STATES, CursorTrigger, mermaid, transition

PAGE = (Path(__file__).parents[3] / "docs" / "subscription-states.md").read_text(encoding="utf-8")
EDGES = CURSOR_STATES.edges
PAIRS = {(edge.old, edge.trigger): edge.new for edge in EDGES}


def test_no_pair_of_state_and_trigger_has_two_edges() -> None:
    assert len(PAIRS) == len(EDGES)


@pytest.mark.parametrize("state", [None, *SubscriptionState])
@pytest.mark.parametrize("trigger", CursorTrigger)
def test_only_the_edges_of_the_table_exist(state: SubscriptionState | None, trigger: CursorTrigger) -> None:
    if (state, trigger) in PAIRS:
        assert transition(state, trigger) is PAIRS[state, trigger]
    else:
        with pytest.raises(IllegalTransition, match=rf"{state or 'no state'} has no edge for {trigger}"):
            transition(state, trigger)


def test_every_trigger_has_an_edge_and_every_state_a_paragraph() -> None:
    assert {edge.trigger for edge in EDGES} == set(CursorTrigger)
    assert states.__doc__ is not None
    assert [state for state in SubscriptionState if f"``{state}``" not in states.__doc__] == []
    assert {edge.number for edge in EDGES} == set(range(1, 9))


def test_the_page_has_every_edge_with_its_reason() -> None:
    rows = [f"| {e.number} | {e.old or ''} | {e.new} | `{e.trigger}` | {e.why} |" for e in EDGES]
    assert [row for row in rows if row not in PAGE] == []
    assert f"```mermaid\n{mermaid()}```" in PAGE
