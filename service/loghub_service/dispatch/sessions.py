"""The consumers of subscriptions over HTTP: which consumers there are, and what each of them was dealt.

Nothing here waits or has a clock: the time is handed in, in monotonic seconds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loghub_service.subscription.events import DeliveredRun, Delivery

SubscriptionKey = tuple[int, str]  # the logstore's id and the subscription's name
Dealt = tuple[int, list[DeliveredRun]]  # a shard, and what is dealt of it

# The table is looked at every second. After a longer gap the service itself was stopped or overloaded, so its
# clients could not exchange, and every lease is longer by the gap.
LOOK_S = 1.0


def session_text(generation: str, secret: str) -> str:
    """The text of a new session. The subscription has another ``generation``, which survives a restart, with
    its creation and with each seek."""
    return f"{generation}-{secret}"


def is_of_generation(session: str, generation: str) -> bool:
    """Whether a session, which may have ended, began after the creation and the last seek of the
    subscription."""
    return session.partition("-")[0] == generation


def _nothing() -> None:
    """Does nothing, because no request waits."""


@dataclass(slots=True, kw_only=True, eq=False)
class LeasedConsumer:
    """One consumer (`loghub_service.dispatch.ports.Receiver`).

    ``queue`` has what was dealt to it and not sent, and ``last`` what the answer with ``last_number`` had.
    ``turn`` is another number with each receive, so that an older one knows that it is over. ``changes``
    counts how often the consumer became active for a shard or was relieved, and how often log data turned out
    to be damaged; ``reported_changes`` of them are in an answer. ``settlement`` is the number of the last
    call whose negative acknowledgments and releases had their effect. ``wake`` is called when something has
    happened. ``sending`` is held while an answer with logs is made, so that a repeated receive finds that
    answer. ``unreadable`` has what was dealt and cannot be read, and is read again at ``read_again_s``;
    ``damage`` says why, by shard.
    """

    id: str
    subscription: SubscriptionKey
    name: str
    number: int
    nonce: str
    lease_s: float
    bodies: bool
    expires_s: float
    seen_s: float
    in_progress: int = 0
    is_closed: bool = False
    turn: int = 0
    changes: int = 0
    reported_changes: int = 0
    settlement: int = 0
    last_number: int = 0
    last: list[Dealt] = field(default_factory=list)
    queue: deque[Dealt] = field(default_factory=deque)
    unreadable: list[Dealt] = field(default_factory=list)
    damage: dict[int, str] = field(default_factory=dict)
    read_again_s: float = 0.0
    epochs: dict[int, int] = field(default_factory=dict)
    wake: Callable[[], None] = _nothing
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    endpoint: str = "http"
    backlog: dict[int, int | None] = field(default_factory=dict)  # as it was at ``backlog_s``
    backlog_s: float = float("-inf")

    @property
    def queued_logs(self) -> int:
        return sum(stop - first for _, runs in self.queue for first, stop, _ in runs)

    def deliver(self, delivery: Delivery) -> None:
        self.queue.append((delivery.shard, delivery.runs))
        self.wake()

    def active_changed(self, shard: int, *, is_active: bool) -> None:
        self.changes += 1
        if not is_active:
            self.drop(shard)
        self.wake()

    def cannot_read(self, shard: int) -> None:  # noqa: ARG002 - an answer names all such shards
        self.changes += 1
        self.wake()

    def closed(self) -> None:
        self.is_closed = True
        self.queue.clear()
        self.unreadable.clear()
        self.wake()

    def drop(self, shard: int) -> None:
        """What was dealt of the shard and is not settled comes again, here or at another consumer."""
        self.queue = deque(dealt for dealt in self.queue if dealt[0] != shard)
        self.last = [dealt for dealt in self.last if dealt[0] != shard]
        self.unreadable = [dealt for dealt in self.unreadable if dealt[0] != shard]
        self.damage.pop(shard, None)
        self.epochs[shard] = self.epochs.get(shard, 0) + 1

    def take(self, now_s: float) -> list[Dealt]:
        """All that is queued, and what could not be read, if it is time to try again."""
        taken, self.queue = list(self.queue), deque()
        if self.unreadable and now_s >= self.read_again_s:
            taken, self.unreadable = [*self.unreadable, *taken], []
        return taken

    def keep_unreadable(self, dealt: Sequence[Dealt], found: Mapping[int, str], again_s: float) -> None:
        """Keep what could not be read, and why, until a time."""
        if dealt:
            self.read_again_s = max(self.read_again_s, again_s)
        self.unreadable += dealt
        shards = {shard for shard, _ in self.unreadable}
        self.damage = {shard: words for shard, words in {**self.damage, **found}.items() if shard in shards}

    def valid(self, dealt: Sequence[Dealt], epochs: dict[int, int]) -> list[Dealt]:
        """The logs that were not dropped since ``epochs``."""
        return [one for one in dealt if self.epochs.get(one[0], 0) == epochs.get(one[0], 0)]

    def put_back(self, dealt: Sequence[Dealt], epochs: dict[int, int]) -> None:
        """What did not fit into an answer is the first of the next one, unless it was dropped since
        ``epochs``."""
        self.queue.extendleft(reversed(self.valid(dealt, epochs)))


class SessionTable:
    """All sessions of the service."""

    def __init__(self) -> None:
        self._by_id: dict[str, LeasedConsumer] = {}
        self._by_name: dict[tuple[SubscriptionKey, str], LeasedConsumer] = {}
        self._looked_s: float | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[LeasedConsumer]:
        return iter(tuple(self._by_id.values()))

    def find(self, subscription: SubscriptionKey, session: str) -> LeasedConsumer | None:
        """A session that has not ended."""
        found = self._by_id.get(session)
        return None if found is None or found.subscription != subscription or found.is_closed else found

    def named(self, subscription: SubscriptionKey, consumer: str) -> LeasedConsumer | None:
        """The session of a consumer that has not ended."""
        found = self._by_name.get((subscription, consumer))
        return None if found is None or found.is_closed else found

    def add(self, session: LeasedConsumer) -> None:
        """No session of its name is there that has not ended."""
        before = self._by_name.get((session.subscription, session.name))
        if before is not None:
            self.remove(before)
        if self._looked_s is None:
            self._looked_s = session.seen_s
        self._by_id[session.id] = session
        self._by_name[session.subscription, session.name] = session

    def remove(self, session: LeasedConsumer) -> None:
        """Remove a session that has ended; it may be gone already."""
        session.is_closed = True
        if self._by_id.pop(session.id, None) is session:
            del self._by_name[session.subscription, session.name]

    def ended(self, now_s: float) -> list[LeasedConsumer]:
        """The sessions to be removed: those whose lease is over, and those that were closed. Call it every
        `LOOK_S`, while there are any."""
        gap_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s if self._by_id else None
        ended = []
        for session in self._by_id.values():
            if gap_s > 2 * LOOK_S:
                session.expires_s = min(session.expires_s + gap_s, now_s + session.lease_s)
            if session.is_closed or (not session.in_progress and session.expires_s <= now_s):
                ended.append(session)
        return ended


def begin_call(session: LeasedConsumer, now_s: float) -> None:
    """Note that the session begins a call, which is a sign of life."""
    session.in_progress += 1
    session.seen_s = now_s


def end_call(session: LeasedConsumer, now_s: float) -> None:
    """Note that a call has ended: the lease begins again."""
    session.in_progress -= 1
    session.seen_s = now_s
    session.expires_s = now_s + session.lease_s
