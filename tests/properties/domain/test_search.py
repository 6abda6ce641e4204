"""A search through every order of events over small groups, breadth first, up to a stated number of systems.

Each system reached has passed the invariants of docs/shard-states.md 3 and those of `group_system`, and from
each the group settles within two heartbeats once nothing else happens. With ``-s`` the numbers are printed.
"""

from collections.abc import Iterator
from types import ModuleType

import pytest

from loghub.domain import coordinator
from loghub.domain.fsm import SHARD_STATES
from loghub.domain.group import Event, GroupState, RefusalCode, ServicePaused, Step
from tests.properties.domain.group_system import GroupModel, Setup
from tests.properties.domain.numbered_group import NumberedGroup
from tests.properties.guards import counting_copies
from tests.properties.numbered_states import Coverage
from tests.properties.search import search

pytestmark = pytest.mark.long

SETUPS = {
    "one shard that may split": Setup(names="ab", shards=1, max_shards=3),
    "two shards": Setup(names="ab", shards=2, max_shards=2),
    "two ordered shards, one consumer fences": Setup(
        names="ab", fencing="a", shards=2, max_shards=4, order=True
    ),
    "an ordered shard that may split twice": Setup(
        names="ab", max_shards=5, order=True, late_heartbeats=False
    ),
    "two shards, three consumers": Setup(names="abc", fencing="c", shards=2, max_shards=2),
    "four shards, two read-only": Setup(names="ab", fencing="b", shards=4, read_only=2, max_shards=4),
    "four shards, three consumers": Setup(names="abc", shards=4, max_shards=4, late_heartbeats=False),
}
SYSTEMS = 6_000  # for each setup, 42,000 in all: enough to use every row of the table and every guard
DEEP_SYSTEMS = 450_000  # 3.15 million in all
PLANTED_SYSTEMS = 100_000  # at most, until a planted fault is found

# Guards that no search can reach, with the reason.
UNREACHABLE: dict[str, str] = {}


def models(rules: ModuleType = coordinator) -> Iterator[GroupModel]:
    return (GroupModel(setup, NumberedGroup(rules)) for setup in SETUPS.values())


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    model = GroupModel(setup)
    found = search(model, systems=DEEP_SYSTEMS)
    print(f"{found}, {len(model.group)} states of the group")
    assert found.systems >= DEEP_SYSTEMS


def test_the_searches_use_every_row_of_the_table_every_guard_and_every_refusal() -> None:
    (*_, rules), guards = counting_copies("loghub.domain", ("balance", "group_builder", "coordinator"))
    coverage = Coverage()
    for model in models(rules):
        found = search(model, systems=SYSTEMS)
        print(f"{found}, {len(model.group)} states of the group")
        assert found.systems >= SYSTEMS
        coverage.add(model.group.coverage)
    assert coverage.missed(edges=SHARD_STATES.edges, events=Event.__args__, refusals=RefusalCode) == set()
    print(guards.table())
    assert guards.missed() == set(UNREACHABLE)


# --- the search finds what it is there for -------------------------------------------------------


def _found(setup: Setup, rules: ModuleType = coordinator) -> str:
    model = GroupModel(setup, NumberedGroup(rules))
    with pytest.raises(AssertionError) as failure:
        search(model, systems=PLANTED_SYSTEMS)
    return str(failure.value)


def test_a_service_that_forgets_that_it_was_paused_is_found() -> None:
    def step(state: GroupState, event: Event, *, now: float) -> Step:
        if isinstance(event, ServicePaused):
            return Step(state=state)
        return coordinator.step(state, event, now=now)

    rules = ModuleType("forgetful")
    rules.__dict__.update({**vars(coordinator), "step": step})
    found = _found(SETUPS["two shards"], rules)
    assert "time passes without the service" in found
    assert "session of" in found or "was expelled" in found


def test_an_overtaken_heartbeat_is_the_one_way_to_lose_a_shard_without_being_silent() -> None:
    """docs/decisions/domain.md: a consumer has at most one heartbeat in flight."""
    found = _found(Setup(names="ab", shards=2, max_shards=2, excuse_overtaken=False))
    assert "two consumers work on" in found
    assert "late heartbeat of" in found
