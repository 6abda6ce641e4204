"""A search through every order of events over small Kafka groups, breadth first, up to a number of systems.

Each system reached has passed the invariants of `group_system` and of `numbered_group`. With ``-s`` the
numbers are printed.
"""

from collections.abc import Iterator

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode
from loghub_service.kafka.coordinator.requests import Event
from loghub_service.kafka.coordinator.states import KAFKA_GROUP_STATES
from tests.properties.kafka.group_system import KafkaGroupModel
from tests.properties.kafka.system import Setup
from tests.properties.numbered_states import Coverage
from tests.properties.search import search, walk

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


def models() -> Iterator[KafkaGroupModel]:
    return map(KafkaGroupModel, SETUPS.values())


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    model = KafkaGroupModel(setup)
    found = search(model, systems=DEEP_SYSTEMS)
    print(f"{found}, {len(model.group)} states of the group")
    assert found.systems >= DEEP_SYSTEMS


def test_the_searches_and_random_lives_use_every_row_of_the_table_every_event_and_every_error() -> None:
    coverage = Coverage()
    for model in models():
        found = search(model, systems=SYSTEMS)
        print(f"{found}, {len(model.group)} states of the group")
        assert found.systems >= SYSTEMS
        for seed in range(WALKS):
            walk(model, seed=seed, steps=STEPS)
        coverage.add(model.group.coverage)
    missed = coverage.missed(edges=KAFKA_GROUP_STATES.edges, events=Event.__args__, refusals=GroupErrorCode)
    assert missed == {f"refusal {error.name}" for error in UNREACHABLE}
