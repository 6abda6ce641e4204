"""The four types of subscription, as unmodified Pulsar clients see them: who gets which message, and when."""

from collections import Counter
from itertools import count

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES, RefusedError
from tests.compat.pulsar.clients import Consumer, Message, Sent, values
from tests.compat.pulsar.places import Place
from tests.compat.representatives import representative
from tests.support import wait_until

pytestmark = pytest.mark.long
SLOTS = 65_536  # of the keys of Key_Shared


def numbered(first: int, last: int) -> list[str]:
    return [f"value {number}" for number in range(first, last)]


def keyed(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


def slot_of(key: str) -> int:
    """Murmur3 of 32 bits with the seed 0, without its sign, as a slot."""
    data, mask = key.encode(), 0xFFFFFFFF

    def mixed(block: int) -> int:
        block = block * 0xCC9E2D51 & mask
        return (block << 15 | block >> 17) * 0x1B873593 & mask

    found = 0
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        found ^= mixed(int.from_bytes(data[start : start + 4], "little"))
        found = ((found << 13 | found >> 19) * 5 + 0xE6546B64) & mask
    if data[whole:]:
        found ^= mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ found >> shift) * factor & mask
    return (found & 0x7FFFFFFF) % SLOTS


@pytest.mark.parametrize("language", ["java"])  # the only library with priorities
def test_shared_deals_one_by_one_to_the_highest_priority_that_has_room(place: Place, language: str) -> None:
    topic = place.partition()
    client = place.client(language)
    priorities, rooms = (0, 0, 0, 1, 1), (2, 1, 1, 2, 1)
    consumers = [
        client.consumer(topic, type="Shared", priority=priority, queue=room, name=f"c{number}")
        for number, (priority, room) in enumerate(zip(priorities, rooms, strict=True), 1)
    ]
    client.producer(topic).send(*numbered(0, 7))
    # The fourth has the last one; once it has two, all are dealt, whatever room it makes by receiving.
    got = {4: values(consumers[3].receive(2))}
    for number in (1, 2, 3, 5):
        got[number] = values(consumers[number - 1].receive(rooms[number - 1]))
    dealt = {value: number for number, had in got.items() for value in had}
    order = [dealt[value] for value in numbered(0, 7)]
    if place.expects("priority deals one by one", ours=True, real=False):
        assert order == [1, 2, 3, 1, 4, 5, 4]
    assert Counter(order[:4]) == {1: 2, 2: 1, 3: 1}


@representative("language", LANGUAGES, "python")
def test_failover_has_the_first_name_active_and_its_successor_goes_on_in_order(
    place: Place, language: str
) -> None:
    topic = place.partition()
    client, doomed = place.client(language), place.client(language, own=True)
    producer = client.producer(topic)
    standby = client.consumer(topic, type="Failover", name="bbb")
    active = doomed.consumer(topic, type="Failover", name="aaa")  # joins later, and comes first
    producer.send(*numbered(0, 10))
    messages = active.receive(10)
    assert values(messages) == numbered(0, 10)
    active.ack_cumulative(messages[3])
    active.ack(messages[5])
    doomed.program.kill()  # with acks that it may have kept to itself
    producer.send("the last")
    after = values(standby.receive_until("the last"))
    assert after == [value for value in numbered(0, 10) if value in after]
    assert {"value 4", *numbered(6, 10)} <= set(after)


@pytest.mark.parametrize("language", ["java"])
@pytest.mark.parametrize(("priorities", "active"), [((0, 0), "aaa"), ((1, 0), "bbb")])
def test_failover_goes_by_priority_and_then_by_name(
    place: Place, language: str, priorities: tuple[int, int], active: str
) -> None:
    topic = place.partition()
    client = place.client(language)
    consumers = {
        name: client.consumer(topic, type="Failover", name=name, priority=priority)
        for name, priority in zip(("aaa", "bbb"), priorities, strict=True)
    }
    client.producer(topic).send("a")
    assert values(consumers[active].receive()) == ["a"]
    (other,) = consumers.keys() - {active}

    def both_heard() -> bool:
        return [one.active[-1:] for one in (consumers[active], consumers[other])] == [
            [(0, True)],
            [(0, False)],
        ]

    wait_until(both_heard, "both listeners")
    consumers[active].close()
    wait_until(lambda: consumers[other].active[-1] == (0, True), "the successor's listener")
    assert values(consumers[other].receive()) == ["a"]


@pytest.mark.parametrize("language", ["java"])
def test_failover_spreads_partitions_evenly_while_members_come_and_go(place: Place, language: str) -> None:
    """Python's library has no listener, and Go's does not hear what comes before its consumer is made."""
    topic = place.topic(4)
    client = place.client(language)
    producers = [client.producer(place.partition(number, topic=topic)) for number in range(4)]
    members: list[Consumer] = []
    rounds = count()

    def check_spread() -> None:
        """Each partition is read by one member, and each member has its share."""

        def held(member: Consumer) -> set[int]:
            last = dict(member.active)
            return {partition for partition, active in last.items() if active}

        def spread() -> bool:
            shares = [held(member) for member in members]
            sizes = [len(share) for share in shares]
            return (
                sorted(set().union(*shares)) == [0, 1, 2, 3]
                and sum(sizes) == 4
                and max(sizes) - min(sizes) <= 1
            )

        wait_until(spread, f"{len(members)} members with an even share")
        number = next(rounds)
        for partition, producer in enumerate(producers):
            producer.send(f"{partition} of round {number}")
        for member in members:
            expected = {f"{partition} of round {number}" for partition in held(member)}
            messages: list[Message] = []
            while expected - set(values(messages)):
                messages += member.receive()  # what others had not acknowledged comes first
            member.ack(*messages)

    for name in ("a", "b", "c", "d"):
        members.append(client.consumer(topic, type="Failover", name=name))
        check_spread()
    while len(members) > 1:
        members.pop(0).close()
        check_spread()


@representative("language", LANGUAGES, "go")
def test_a_second_exclusive_consumer_and_another_type_are_refused(place: Place, language: str) -> None:
    topic = place.topic()
    client = place.client(language)
    first = client.consumer(topic)
    for kind in ("Exclusive", "Shared", "Failover", "Key_Shared"):
        with pytest.raises(RefusedError, match="ConsumerBusy"):
            client.consumer(topic, type=kind)
    client.producer(topic).send("a")
    (message,) = first.receive()
    first.ack(message)
    first.close()
    second = client.consumer(topic, type="Shared")  # nobody is connected, so the type may change
    client.producer(topic).send("b")
    assert values(second.receive()) == ["b"]


def key_names(number: int) -> list[str]:
    return [f"k{one}" for one in range(number)]


@representative("language", LANGUAGES, "python")
def test_key_shared_with_ranges_splits_as_pulsar_does(place: Place, language: str) -> None:
    topic = place.partition()
    client = place.client(language)
    half = SLOTS // 2
    low = client.consumer(topic, type="Key_Shared", ranges=[[0, half - 1]])
    keys = key_names(16)
    client.producer(topic).send(*(keyed(key, key) for key in keys))
    lower = [key for key in keys if slot_of(key) < half]
    assert 0 < len(lower) < len(keys)
    assert values(low.receive(len(lower))) == lower
    with pytest.raises(RefusedError, match="ConsumerAssign"):
        client.consumer(topic, type="Key_Shared", ranges=[[half - 1, half]])
    # The others have waited for an owner of their slots.
    high = client.consumer(topic, type="Key_Shared", ranges=[[half, SLOTS - 1]])
    assert values(high.receive(len(keys) - len(lower))) == [key for key in keys if slot_of(key) >= half]


@representative("language", LANGUAGES, "go")
def test_each_key_of_a_batch_goes_to_its_owner(place: Place, language: str) -> None:
    topic, client = place.partition(), place.client(language)
    half = SLOTS // 2
    low = client.consumer(topic, type="Key_Shared", ranges=[[0, half - 1]])
    high = client.consumer(topic, type="Key_Shared", ranges=[[half, SLOTS - 1]])
    keys = sorted(key_names(16), key=lambda key: slot_of(key) >= half)
    client.producer(topic, batch=16).send(*(keyed(key, key) for key in keys))
    lower = [key for key in keys if slot_of(key) < half]
    expected = place.expects("keys in a batch", ours=lower, real=keys)
    assert values(low.receive(len(expected))) == expected
    assert values(high.receive(16 - len(expected))) == keys[len(expected) :]


class KeyOrder:
    """What Key_Shared promises, checked at each message: a key has one consumer at a time, and first
    deliveries come in order."""

    def __init__(self) -> None:
        self.firsts: dict[str, list[int]] = {}
        self.acked: set[tuple[str, int]] = set()
        self.holders: dict[tuple[str, int], str] = {}  # of what is not acknowledged, among living consumers

    def received(self, consumer: str, message: Message) -> None:
        key, number = str(message.key), int(str(message.value))
        others = {name for (held, _), name in self.holders.items() if held == key and name != consumer}
        assert not others, f"{key} is at {others} and at {consumer}"
        self.holders[key, number] = consumer
        order = self.firsts.setdefault(key, [])
        if number not in order:
            assert not order or number > order[-1], f"{key}: {number} after {order[-1]}"
            order.append(number)

    def acknowledged(self, message: Message) -> None:
        place = (str(message.key), int(str(message.value)))
        self.acked.add(place)
        self.holders.pop(place, None)

    def left(self, consumer: str) -> None:
        for place in [place for place, name in self.holders.items() if name == consumer]:
            del self.holders[place]


@pytest.mark.parametrize(
    ("keys", "each"),
    [(20, 10), pytest.param(200, 100, marks=pytest.mark.deep(minutes=5))],
    ids=["200", "20k"],
)
def test_key_shared_keeps_the_order_of_each_key_while_members_come_and_go(
    place: Place, keys: int, each: int
) -> None:
    """Members of all three libraries; whenever one has a part, one leaves and another joins."""
    topic = place.partition()
    producer = place.client("go").producer(topic, batch=10)
    sent = [keyed(key, str(number)) for number in range(each) for key in key_names(keys)]
    # One key in each batch, else Pulsar hands a batch to the owner of its first key.
    by_key = [row for key in key_names(keys) for row in sent if row["key"] == key]
    order, members = KeyOrder(), {}
    languages = ("python", "go", "java") if place.is_real or keys > 20 else ("python", "go")
    names = (f"{language}{number}" for number in count() for language in languages)

    def joined() -> None:
        name = next(names)
        client = place.client(name.rstrip("0123456789"))
        members[name] = client.consumer(topic, type="Key_Shared", name=name, queue=10)

    for _ in range(3):
        joined()
    running = producer.begin(*by_key)
    steps, total = 0, keys * each
    while len(order.acked) < total:
        before = len(order.acked)
        for name, member in list(members.items()):
            messages = member.receive_within(200, most=20)
            for message in messages:
                order.received(name, message)
            kept = messages[: len(messages) - steps % 3]  # the others are not acknowledged before it leaves
            for message in kept:
                order.acknowledged(message)
            if kept:
                member.ack(*kept)
        steps += 1
        if steps % 2 == 0 or len(order.acked) == before:
            name = next(iter(members))
            members.pop(name).close()
            order.left(name)
            joined()
        assert steps < 100 + total, f"{len(order.acked)} of {total}"
    assert all(isinstance(one, Sent) for one in producer.sent(running))
    assert {key: len(numbers) for key, numbers in order.firsts.items()} == dict.fromkeys(
        key_names(keys), each
    )


@pytest.mark.parametrize(
    "number", [300, pytest.param(10_000, marks=pytest.mark.deep(minutes=5))], ids=["300", "10k"]
)
def test_shared_loses_nothing_of_members_that_refuse_messages_and_are_killed(
    place: Place, number: int
) -> None:
    """Each message that a member has acknowledged and lived on comes no more; what is refused comes again."""
    topic = place.topic(3)
    languages = ("python", "go") if number < 1000 else LANGUAGES
    doomed = [place.client(language, own=True) for language in ("go", "python")]
    steady = [place.client(language) for language in languages]
    members = [client.consumer(topic, type="Shared", nackMs=100, queue=20) for client in (*steady, *doomed)]
    batch = place.expects("a nack in a batch", ours=10, real=0)
    producer = steady[0].producer(topic, batch=batch, delayMs=1)
    sending = producer.begin(*numbered(0, number))
    acked: set[str | None] = set()  # for good, since the member lives
    acked_by_doomed: set[str | None] = set()
    rounds = 0
    while len(acked | acked_by_doomed) < number:
        rounds += 1
        for member in members:
            messages = member.receive_within(100, most=50)
            again = acked.intersection(values(messages))
            assert len(again) <= place.expects(
                "a refused message at two consumers", ours=0, real=len(messages)
            )
            refused = messages[rounds % 20 :: 20]
            taken = [message for message in messages if message not in refused]
            member.nack(*refused)
            member.ack(*taken)
            is_doomed = member.program in [client.program for client in doomed]
            (acked_by_doomed if is_doomed else acked).update(values(taken))
        if rounds in (2, 4):
            gone = doomed.pop()
            gone.program.kill()
            members = [member for member in members if member.program is not gone.program]
    assert all(isinstance(one, Sent) for one in producer.sent(sending))
    for member in members:
        member.close()
    producer.send("the last")
    # An ack may have been lost with its member, nothing else is left.
    rest = steady[0].consumer(topic, type="Shared").receive_until("the last", most=number)
    assert set(values(rest)) <= acked_by_doomed - acked
