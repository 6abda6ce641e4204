"""A search through every order of events over small subscriptions, breadth first, up to a number of systems,
and random lives that go deeper.

Each step has passed the invariants of `tests.loghub_service.subscription.invariants`. With ``-s`` the numbers
are printed.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
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
from tests.properties.subscription.lives import Life
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
ONE = {0: ((0, 1), (0,), (1,), (1, 0), (0,), (0, 1))}
HIGH = SLOTS - 1
SETUPS = {
    "Exclusive": Setup(types=EXCLUSIVE, groups=ONE, limits=TIGHT, is_small=True),
    "Failover with priorities": Setup(
        types=FAILOVER, groups=ONE, priorities=(0, 0, 1), admin=False, limits=WIDE
    ),
    "Failover over a merge": Setup(
        types=FAILOVER,
        groups={0: ((0,),), 1: ((0,), (0,)), 2: ((0, 0), (0,))},
        attached=((0, 2), (1, 2)),
        parents={2: (0, 1)},
        start_groups=1,
        limits=TIGHT,
    ),
    "Shared": Setup(types=SHARED, groups=ONE, limits=TIGHT),
    "Shared over two shards, with delays": Setup(
        types=SHARED,
        groups={0: ((0, 0), (0,)), 1: ((0,), (0, 0))},
        attached=((0, 1), (1,)),
        start_groups=1,
        delays=True,
        limited=frozenset({0}),
        limits=TIGHT,
    ),
    "Shared with priorities and delays": Setup(
        types=SHARED,
        groups=ONE,
        priorities=(0, 1),
        delays=True,
        delayed_group=1,
        limited=frozenset({0}),
        admin=False,
        limits=WIDE,
    ),
    "Key_Shared": Setup(
        types=KEY_SHARED,
        groups={0: ((0, HIGH, 0), (HIGH,), (0,))},
        priorities=(0, 0, 0),
        admin=False,
        limits=WIDE,
    ),
    "Key_Shared with little room": Setup(
        types=KEY_SHARED,
        groups={0: ((0, HIGH), (0,), (HIGH,), (HIGH, 0), (0,))},
        delays=True,
        limits=TIGHT,
    ),
    "Key_Shared with chosen slots, and what is refused": Setup(
        types=KEY_SHARED,
        groups={0: ((0, 9), (0,), (9,))},
        slots=(((0, 0),), ((9, HIGH),)),
        admin=False,
        bad=True,
        is_small=True,
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
        is_small=True,
        limits=TIGHT,
    ),
}
SYSTEMS = 1_250  # for each setup, 13,750 in all, each some 4 steps of 0.1 ms
# Of each setup but the small ones, 100,000 in all. With so few of each layer a search goes 30 events deep and
# takes 2 steps of 0.1 ms for each system. With all of them it would be 5 events and 5 steps, and with a third
# it would end where everything is acknowledged and little is new.
WIDE_SYSTEMS, WIDTH = 12_500, 60
DEEP_SYSTEMS = 200_000  # 2 million in all
LIVES, STEPS = 60, 200  # of each type
DEEP_LIVES = 1_000
# Of the modules of the rules, in the order in which they import each other.
COUNTED = ("acked", "slots", "state", "ordered", "shared", "keyed", "step")
# Outcomes of conditions that neither the searches nor the lives need to reach, with the reason.
HASHED = "a search has slots, and no keys"
TYPED = "says only to the types what holds anyway"
RARE = "a few more lives reach it; tests/loghub_service/subscription has it"
LARGE = "needs more logs than a search has; tests/loghub_service/subscription has it"
REPORTED = "for an answer to a user; no rule reads it"
UNREACHABLE = {
    "acked.add: stop > self.mark is False": "for saved deltas; the core adds what is not acknowledged",
    "keyed._assign_chosen: member.consumer.slots is False": TYPED,
    "keyed._deal_new: entry.slots is False": TYPED,
    "keyed._deal_new: self.is_held_back(entry, position, draft) is False": RARE,
    "shared._forget_acked: p not in acked is False": RARE,
    "ordered._drop_acked: end in self.stops is False": LARGE,
    "ordered._drop_acked: end in self.stops is True": LARGE,
    "ordered._drop_acked: len(self.order) > 2 * len(self.stops) + _SLACK is True": LARGE,
    "ordered.dispatch: active is None is True": TYPED,
    "ordered.wants: self.active is not None is False": TYPED,
    "shared.runs_of: (first & INDEX_MASK) + size <= INDEX_MASK is False": LARGE,
    "slots._murmur3: whole < len(data) is False": HASHED,
    "slots._murmur3: whole < len(data) is True": HASHED,
    "slots.slot_of: len(key) <= MAX_HASHED_BYTES is False": HASHED,
    "slots.slot_of: len(key) <= MAX_HASHED_BYTES is True": HASHED,
    "state.key_in_use: self.type is SubscriptionType.KEY_SHARED is False": REPORTED,
    "state.key_in_use: self.type is SubscriptionType.KEY_SHARED is True": REPORTED,
    "step._refuse_join: member.slots is False": TYPED,
}


for_each_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)


def models(rules: SimpleNamespace = RULES) -> Iterator[SubscriptionModel]:
    return (SubscriptionModel(setup, rules) for setup in SETUPS.values())


def lives() -> Iterator[Callable[[], None]]:
    """A few of each type, for mutants."""
    for kind, seed in product(SubscriptionType, range(6)):
        yield partial(Life(seed, kind, RULES, Coverage()).run, STEPS)


@pytest.mark.parametrize(
    "setup",
    [setup for setup in SETUPS.values() if not setup.is_small],
    ids=[name for name, setup in SETUPS.items() if not setup.is_small],
)
def test_orders_of_events_that_are_drawn_by_lot(setup: Setup) -> None:
    found = search(SubscriptionModel(setup), systems=WIDE_SYSTEMS, width=WIDTH)
    print(found)
    assert found.systems >= WIDE_SYSTEMS


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@for_each_setup
def test_every_order_of_events(setup: Setup) -> None:
    found = search(SubscriptionModel(setup), systems=DEEP_SYSTEMS)
    print(found)


@pytest.mark.deep(minutes=10)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SubscriptionType)
def test_random_lives(kind: SubscriptionType) -> None:
    coverage = Coverage()
    for seed in range(DEEP_LIVES):
        Life(seed, kind, RULES, coverage).run(STEPS)
    print(coverage.events)


def test_the_searches_and_random_lives_use_every_row_of_the_table_every_guard_and_every_refusal() -> None:
    copies, guards = counting_copies("loghub_service.subscription", COUNTED)
    rules, coverage = all_names(copies), Coverage()
    for model in models(rules):
        print(search(model, systems=SYSTEMS))
        coverage.add(model.coverage)
    for kind, seed in product(SubscriptionType, range(LIVES)):
        Life(seed, kind, rules, coverage).run(STEPS)
    missed = coverage.missed(edges=CURSOR_STATES.edges, events=Event.__args__, refusals=Refusal)
    assert missed == set()
    print(guards.table())
    assert guards.missed() <= set(UNREACHABLE)
