"""The table of a group's states is consistent, and the page shows it."""

from pathlib import Path

import pytest

from loghub.domain.table import IllegalTransition
from loghub_service.kafka.coordinator import states
from loghub_service.kafka.coordinator.states import (
    KAFKA_GROUP_STATES,
    KafkaGroupState,
    KafkaTrigger,
    transition,
)

EDGES = KAFKA_GROUP_STATES.edges

PAGE = (Path(__file__).parents[4] / "docs" / "kafka-groups.md").read_text(encoding="utf-8")
PAIRS = {(edge.old, edge.trigger): edge.new for edge in EDGES}


def test_no_pair_of_state_and_trigger_has_two_edges() -> None:
    assert len(PAIRS) == len(EDGES)


@pytest.mark.parametrize("state", KafkaGroupState)
@pytest.mark.parametrize("trigger", KafkaTrigger)
def test_only_the_edges_of_the_table_exist(state: KafkaGroupState, trigger: KafkaTrigger) -> None:
    if (state, trigger) in PAIRS:
        assert transition(state, trigger) is PAIRS[state, trigger]
    else:
        with pytest.raises(IllegalTransition, match=rf"{state} has no edge for {trigger}"):
            transition(state, trigger)


def test_every_trigger_has_an_edge_and_every_state_a_paragraph() -> None:
    assert {edge.trigger for edge in EDGES} == set(KafkaTrigger)
    assert states.__doc__ is not None
    assert [state for state in KafkaGroupState if f"``{state}``" not in states.__doc__] == []


def test_the_numbers_of_edges_belong_to_pairs_of_states() -> None:
    pairs = {number: {(e.old, e.new) for e in EDGES if e.number == number} for number in range(1, 10)}
    assert all(len(pair) == 1 for pair in pairs.values())
    assert {e.number for e in EDGES} == set(range(1, 11))


def test_the_page_has_every_edge_with_its_reason() -> None:
    rows = [f"| {e.number} | {e.old} | {e.new} | `{e.trigger}` | {e.why} |" for e in EDGES]
    assert [row for row in rows if row not in PAGE] == []
    assert KAFKA_GROUP_STATES.mermaid() in PAGE
