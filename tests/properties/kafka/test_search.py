"""A search through every order of events over small Kafka groups, breadth first, up to a number of systems.

Each system reached has passed the invariants of `group_system` and of `memoized_group`. With ``-s`` the
numbers are printed.
"""

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode
from loghub_service.kafka.coordinator.requests import Event
from loghub_service.kafka.coordinator.states import EDGES
from tests.properties.kafka.group_system import GroupModel
from tests.properties.kafka.memoized_group import Coverage, MemoizedGroup
from tests.properties.kafka.search import search, walk
from tests.properties.kafka.system import Setup

pytestmark = pytest.mark.long

SETUPS = {
    "two dynamic members": Setup(names="ab", instances="--"),
    "two static members": Setup(names="ab", instances="xy"),
    "an earlier and a later process of a static member": Setup(names="ab", instances="xx"),
    "a static and a dynamic member": Setup(names="ab", instances="x-", admin=False),
    "three members, of which one is static": Setup(names="abc", instances="--z", late=False, admin=False),
}
SYSTEMS = 4_000  # for each setup, 20,000 in all
DEEP_SYSTEMS = 500_000  # 2.5 million in all
WALKS, STEPS = 10, 200
# Errors of requests that are wrong whatever the state; the unit tests have them.
UNREACHABLE = {
    GroupErrorCode.OFFSET_METADATA_TOO_LARGE,
    GroupErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    GroupErrorCode.COORDINATOR_NOT_AVAILABLE,
    GroupErrorCode.INVALID_GROUP_ID,
    GroupErrorCode.INVALID_SESSION_TIMEOUT,
    GroupErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    GroupErrorCode.INVALID_REQUEST,
    GroupErrorCode.POLICY_VIOLATION,
    GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    model = GroupModel(setup)
    found = search(model, systems=DEEP_SYSTEMS)
    print(f"{found}, {len(model.group)} states of the group")
    assert found.systems >= DEEP_SYSTEMS


def test_the_searches_and_random_lives_use_every_row_of_the_table_every_event_and_every_error() -> None:
    coverage = Coverage()
    for setup in SETUPS.values():
        model = GroupModel(setup, MemoizedGroup())
        found = search(model, systems=SYSTEMS)
        print(f"{found}, {len(model.group)} states of the group")
        assert found.systems >= SYSTEMS
        for seed in range(WALKS):
            walk(model, seed=seed, steps=STEPS)
        coverage.add(model.group.coverage)
    rows = {f"{e.number} {e.old} {e.trigger} {e.new}": (e.old, e.trigger, e.new) for e in EDGES}
    for name, row in rows.items():
        print(f"{coverage.rows[row]:9} row {name}")
    for kind, count in coverage.events.items():
        print(f"{count:9} event {kind}")
    for error in GroupErrorCode:
        print(f"{coverage.errors[error]:9} error {error.name}")
    assert [name for name, row in rows.items() if not coverage.rows[row]] == []
    assert set(coverage.events) == {kind.__name__ for kind in Event.__args__}
    assert {error for error in GroupErrorCode if not coverage.errors[error]} == UNREACHABLE
