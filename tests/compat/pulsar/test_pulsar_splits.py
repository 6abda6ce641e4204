"""Shards that are split and merged while unmodified Pulsar clients write and read."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire.subscriptions import SubscriptionSpec
from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import Consumer, Message, Producer, Sent
from tests.compat.pulsar.places import Place, ServicePlace
from tests.compat.pulsar.test_pulsar_types import KeyOrder

pytestmark = pytest.mark.long
KEYS = 7
AT_ONCE = 40  # messages of a command to send
BACKLOG = 300  # nobody writes while so many are not acknowledged
# Shard 0 becomes 1 and 2, and these become 3. What is sent to partition 0 goes to 1 and then to 3.
PARENTS = {1: (0,), 2: (0,), 3: (1, 2)}
SUBSCRIPTION = "s"
# The producer that writes to a partition. What another writes to the topic moves to another partition as
# their number grows, and its library keeps no order then.
ORDERED = "one"
KINDS = {
    "Exclusive": SubscriptionType.EXCLUSIVE,
    "Failover": SubscriptionType.FAILOVER,
    "Shared": SubscriptionType.SHARED,
    "Key_Shared": SubscriptionType.KEY_SHARED,
}


@dataclass
class Written:
    """A producer that writes on and on. Its keys have its name, and its values are numbers."""

    producer: Producer
    name: str
    messages: int = 0
    running: list[int] = field(default_factory=list)

    def write(self) -> None:
        numbers = range(self.messages, self.messages + AT_ONCE)
        rows = [{"key": f"{self.name}{number % KEYS}", "value": str(number)} for number in numbers]
        self.running.append(self.producer.begin(*rows))
        self.messages += AT_ONCE

    def end(self) -> None:
        """Every message was stored."""
        for command in self.running:
            assert all(isinstance(one, Sent) for one in self.producer.sent(command))

    @property
    def names(self) -> set[tuple[str, int]]:
        return {(f"{self.name}{number % KEYS}", number) for number in range(self.messages)}


@dataclass
class Read:
    """What the members have got, in the order in which they reported it, and what they acknowledged."""

    kind: str
    is_in_order: bool
    order: KeyOrder = field(default_factory=KeyOrder)
    acked: set[tuple[str, int]] = field(default_factory=set)
    open: dict[int, set[tuple[str, int]]] = field(default_factory=dict)  # of each partition
    started: set[int] = field(default_factory=set)  # the partitions of which something came
    last: dict[int | None, int] = field(default_factory=dict)  # of a partition, or of all
    seen: set[tuple[str, int]] = field(default_factory=set)

    def received(self, member: Consumer, message: Message) -> None:
        name, shard = _name(message), message.partition
        # Where another consumer has become active, both have the messages that were out.
        assert self.kind == "Failover" or name not in self.acked, f"{name} came again"
        self.started.add(shard)
        self.open.setdefault(shard, set()).add(name)
        if self.is_in_order:
            waiting = {parent: self.open[parent] for parent in _ancestors(shard) if self.open.get(parent)}
            assert not waiting, f"{name} came from shard {shard} before the end of {waiting}"
            late = {child for child in self.started if shard in _ancestors(child)}
            assert not late, f"{name} came from shard {shard} after something of {late}"
        if self.kind != "Shared" and name not in self.seen and name[0].startswith(ORDERED):
            self._check_order(member, message)
        self.seen.add(name)

    def _check_order(self, member: Consumer, message: Message) -> None:
        if self.kind == "Key_Shared":
            self.order.received(member.name, self._ordered(message))
        else:
            where = None if self.is_in_order else message.partition
            last, number = self.last.get(where, -1), int(str(message.value))
            assert number > last, f"{number} came after {last}"
            self.last[where] = number

    def _ordered(self, message: Message) -> Message:
        """Where children do not wait, a key has an order in each shard."""
        if self.is_in_order:
            return message
        return dataclasses.replace(message, key=f"{message.key} in {message.partition}")

    def acknowledged(self, message: Message) -> None:
        self.acked.add(_name(message))
        self.open[message.partition].discard(_name(message))
        self.order.acknowledged(self._ordered(message))


def _name(message: Message) -> tuple[str, int]:
    return str(message.key), int(str(message.value))


def _ancestors(shard: int) -> set[int]:
    parents = PARENTS.get(shard, ())
    return {*parents, *(one for parent in parents for one in _ancestors(parent))}


def _rows() -> list[object]:
    rows: list[object] = []
    for kind in KINDS:
        for languages in (*((one,) for one in LANGUAGES), LANGUAGES):
            orders = [False] if kind == "Shared" else [True, False] if languages == ("go",) else [True]
            for in_order in orders:
                is_chosen = (kind, languages, in_order) == ("Key_Shared", ("go",), True)
                marks = [] if is_chosen else [pytest.mark.deep(minutes=1)]
                name = f"{kind}-{'-'.join(languages)}-{'in order' if in_order else 'out of order'}"
                rows.append(pytest.param(kind, languages, in_order, id=name, marks=marks))
    return rows


class Load:
    """Producers that write, and members of a subscription that read, while shards are replaced. One producer
    writes to partition 0, one to the topic. The members begin with the latest message, which is older than
    the shards that are born."""

    def __init__(self, place: ServicePlace, kind: str, languages: Sequence[str], *, in_order: bool) -> None:
        self.http, self.kind = place.http, kind
        self.topic = place.topic()
        self.logstore = self.topic.removesuffix(place.suffix)
        spec = SubscriptionSpec(type=KINDS[kind], in_order=in_order, start="end")
        self.http.create_subscription(self.logstore, SUBSCRIPTION, spec)
        self.read = Read(kind, in_order)
        self._clients = [place.client(language) for language in languages]
        self._numbers = count()
        self.members = [self._joined() for _ in range(1 if kind == "Exclusive" else max(2, len(languages)))]
        partition = self._clients[0].producer(place.partition(topic=self.topic), batch=10, delayMs=1)
        whole = self._clients[-1].producer(self.topic, batch=10, delayMs=1, discoveryS=1)
        self.writers = [Written(partition, ORDERED), Written(whole, "all")]
        # A message of the shard that is replaced, as often as it came: another member may have become active.
        self._held: tuple[str, int] | None = None
        self._copies: list[tuple[Consumer, Message]] = []

    def _joined(self) -> Consumer:
        number = next(self._numbers)
        options = {"type": self.kind, "name": f"c{number}", "earliest": False, "indexAck": True, "queue": 20}
        client = self._clients[number % len(self._clients)]
        return client.consumer(self.topic, SUBSCRIPTION, discoveryS=1, **options)

    def exchange_a_member(self) -> None:
        if len(self.members) > 1:
            self.members.pop(0).close()
            self.members.append(self._joined())

    def read_once(self, hold: int | None = None) -> None:
        """``hold``: keep one message of this shard."""
        for member in self.members:
            messages = member.receive_within(50, most=50)
            for message in messages:
                self.read.received(member, message)
                if message.partition == hold and self._held is None:
                    self._held = _name(message)
            self._copies += [(member, message) for message in messages if _name(message) == self._held]
            self._acknowledge(member, *(message for message in messages if _name(message) != self._held))

    def _acknowledge(self, member: Consumer, *messages: Message) -> None:
        if messages:
            member.ack(*messages)
        for message in messages:
            self.read.acknowledged(message)

    def _read_and_write(self, until: Callable[[], bool], hold: int | None = None) -> None:
        while not until():
            if sum(writer.messages for writer in self.writers) - len(self.read.acked) < BACKLOG:
                for writer in self.writers:
                    writer.write()
            self.read_once(hold)

    def replace(self, parent: int, child: int, action: Callable[[str, int], object]) -> None:
        """A message of the parent is held until a consumer has the child: it waits, or something of it has
        come."""
        read = self.read
        self._read_and_write(lambda: self._held is not None, hold=parent)
        action(self.logstore, parent)
        self._read_and_write(lambda: self._waits(child) if read.is_in_order else child in read.started)
        for member, message in self._copies:
            self._acknowledge(member, message)
        self._held, self._copies = None, []
        self._read_and_write(lambda: child in read.started)

    def _waits(self, shard: int) -> bool:
        found = self.http.subscription_status(self.logstore, SUBSCRIPTION).shards
        return any(
            one.shard == shard and one.state is SubscriptionState.WAITS_FOR_PARENT and one.consumers
            for one in found
        )


@pytest.mark.parametrize("shared_place", ["service"], indirect=True)  # a Pulsar broker has no splits
@pytest.mark.parametrize(("kind", "languages", "in_order"), _rows())
def test_a_split_and_a_merge_under_load(
    place: Place, kind: str, languages: Sequence[str], in_order: bool
) -> None:
    """Nothing is lost, nothing comes again after it was acknowledged, and children come after their parents,
    unless the subscription does not want that. Python's library looks for new partitions every minute
    only."""
    assert isinstance(place, ServicePlace)
    load = Load(place, kind, languages, in_order=in_order)
    load.replace(0, 1, place.http.split_shard)
    load.exchange_a_member()
    load.replace(1, 3, place.http.merge_shards)
    sent = set().union(*(writer.names for writer in load.writers))
    while load.read.acked != sent:
        load.read_once()
    for writer in load.writers:
        writer.end()
