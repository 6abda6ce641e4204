"""A search through every order of events over small subscriptions, breadth first, up to a number of systems.

Each step has passed the invariants of `tests.loghub_service.subscription.invariants`. With ``-s`` the numbers
are printed.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import Event, Refusal
from loghub_service.subscription.slots import SLOTS
from loghub_service.subscription.state import SubscriptionLimits
from loghub_service.subscription.states import CURSOR_STATES
from tests.properties.guards import counting_copies
from tests.properties.numbered_states import Coverage
from tests.properties.search import search
from tests.properties.subscription.system import RULES, Setup, SubscriptionModel, all_names

pytestmark = pytest.mark.long

EXCLUSIVE, FAILOVER = (SubscriptionType.EXCLUSIVE,), (SubscriptionType.FAILOVER,)
SHARED, KEY_SHARED = (SubscriptionType.SHARED,), (SubscriptionType.KEY_SHARED,)
TIGHT = SubscriptionLimits(
    max_consumers=2,
    max_permits=2,
    max_ranges=1,
    max_unacked=3,
    max_unacked_of_consumer=2,
    look_ahead=1,
    max_loaded=2,
)
WIDE = SubscriptionLimits(max_permits=3, max_unacked=9, look_ahead=3, max_loaded=2)
ONE = {0: ((0, 1), (0,), (1,))}
HIGH = SLOTS - 1
SETUPS = {
    "Exclusive": Setup(types=EXCLUSIVE, groups=ONE, limits=TIGHT),
    "Failover with priorities": Setup(
        types=FAILOVER, groups=ONE, priorities=(0, 0, 1), admin=False, limits=WIDE
    ),
    "Shared": Setup(types=SHARED, groups=ONE, limits=TIGHT),
    "Shared with priorities and delays": Setup(
        types=SHARED, groups=ONE, priorities=(0, 1), delays=True, delayed_group=1, admin=False, limits=WIDE
    ),
    "Key_Shared": Setup(
        types=KEY_SHARED,
        groups={0: ((0, HIGH, 0), (HIGH,), (0,))},
        priorities=(0, 0, 0),
        admin=False,
        limits=WIDE,
    ),
    "Key_Shared with little room": Setup(
        types=KEY_SHARED, groups={0: ((0, HIGH), (0,), (HIGH,))}, delays=True, limits=TIGHT
    ),
    "Key_Shared with chosen slots, and what is refused": Setup(
        types=KEY_SHARED,
        groups={0: ((0, 9), (0,), (9,))},
        slots=(((0, 0),), ((9, HIGH),)),
        admin=False,
        bad=True,
        limits=TIGHT,
    ),
    "a split, in three types": Setup(
        types=(SubscriptionType.KEY_SHARED, SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED),
        groups={0: ((0,),), 1: ((0, 0),), 2: ((0,),)},
        attached=((0,), (1, 2)),
        parents={1: (0,), 2: (0, 1)},
        start_groups=1,
        limits=replace(TIGHT, max_unacked=1),
    ),
    "a split with chosen slots": Setup(
        types=KEY_SHARED,
        groups={0: ((0,),), 1: ((0, 9),)},
        slots=(((0, 0),), ((0, 0),)),
        attached=((0,), (1,)),
        parents={1: (0,)},
        start_groups=1,
        limits=TIGHT,
    ),
}
SYSTEMS = 3_000  # for each setup, 27,000 in all; a system takes some 0.3 ms, most of it for 4 steps
DEEP_SYSTEMS = 250_000  # 2 million in all; Exclusive has only 3,045
LIVES, STEPS = 4, 300
# Of the modules of the rules, in the order in which they import each other.
COUNTED = ("acked", "slots", "state", "ordered", "shared", "keyed", "step")
# Outcomes of conditions that no search can reach, with the reason.
UNREACHABLE: dict[str, str] = {}


def models(rules: SimpleNamespace = RULES) -> Iterator[SubscriptionModel]:
    return (SubscriptionModel(setup, rules) for setup in SETUPS.values())


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_every_order_of_events(setup: Setup) -> None:
    found = search(SubscriptionModel(setup), systems=DEEP_SYSTEMS)
    print(found)


def test_the_searches_and_random_lives_use_every_row_of_the_table_every_guard_and_every_refusal() -> None:
    copies, guards = counting_copies("loghub_service.subscription", COUNTED)
    coverage = Coverage()
    for model in models(all_names(copies)):
        print(search(model, systems=SYSTEMS))
        for seed in range(LIVES):
            model.life(seed, STEPS)
        coverage.add(model.coverage)
    missed = coverage.missed(edges=CURSOR_STATES.edges, events=Event.__args__, refusals=Refusal)
    assert missed == set()
    print(guards.table())
    assert guards.missed() == set(UNREACHABLE)
