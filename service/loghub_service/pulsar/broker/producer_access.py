"""Which producers may use a partition at the same time: by name, and by the access mode that each asks for.

A name belongs to one producer at a time, and a client that has lost its connection takes its own name back:
it counts its attempts (the epoch). A producer may also ask to be the only one. Each time such a producer
begins, the partition gets a higher topic epoch, so that an earlier exclusive producer that was disconnected
meanwhile does not come back (PIP-68). All pure: displaced and promoted producers are in the result.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.producers import ProducerAccessMode


class Claim(Protocol):
    """What a producer requests. ``key`` is what one producer has at a time: its name, under the name that
    the topic has for it. ``epoch`` counts its attempts, ``topic_epoch`` is the epoch in the answer when it
    became the only one for the first time."""

    @property
    def key(self) -> Hashable: ...
    @property
    def name(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def mode(self) -> ProducerAccessMode: ...
    @property
    def topic_epoch(self) -> int | None: ...


C = TypeVar("C", bound=Claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Generic[C]):
    """A producer that was added. Without ``is_ready`` it waits until it is the only one. ``replaced`` has
    lost its name to it, ``fenced`` have to end, and what waited with ``refused`` is not going to begin."""

    is_ready: bool
    replaced: C | None = None
    fenced: tuple[C, ...] = ()
    refused: tuple[C, ...] = ()


@dataclass(slots=True)
class PartitionProducers(Generic[C]):
    """The producers of one partition. ``topic_epoch`` is the epoch of the last exclusive producer, if any."""

    topic_epoch: int | None = None
    _connected: dict[Hashable, C] = field(default_factory=dict)
    _waiting: "deque[C]" = field(default_factory=deque)
    _exclusive: C | None = None

    def __iter__(self) -> Iterator[C]:
        yield from (*self._connected.values(), *self._waiting)

    def join(self, claim: C) -> Joined[C]:
        """Raises RefusedCommand PRODUCER_BUSY or PRODUCER_FENCED; nothing has changed then."""
        replaced = self._namesake(claim)
        others = [each for each in self._connected.values() if each is not replaced]
        exclusive = None if self._exclusive is replaced else self._exclusive
        waiting = [each for each in self._waiting if each is not replaced]
        self._check(claim, others, exclusive, waiting)
        if replaced is not None:
            self._remove(replaced)
        match claim.mode:
            case ProducerAccessMode.SHARED:
                self._connected[claim.key] = claim
                return Joined(is_ready=True, replaced=replaced)
            case ProducerAccessMode.WAIT_FOR_EXCLUSIVE if others:
                self._waiting.append(claim)
                return Joined(is_ready=False, replaced=replaced)
            case ProducerAccessMode.EXCLUSIVE_WITH_FENCING:
                self._connected.clear()
                self._waiting.clear()
                self._begin(claim)
                return Joined(is_ready=True, replaced=replaced, fenced=tuple(others), refused=tuple(waiting))
        self._begin(claim)
        return Joined(is_ready=True, replaced=replaced)

    def leave(self, claim: C) -> C | None:
        """The producer that has waited longest and is the only one now, if there is one."""
        self._remove(claim)
        if self._connected or not self._waiting:
            return None
        promoted = self._waiting.popleft()
        self._begin(promoted)
        return promoted

    def _namesake(self, claim: C) -> C | None:
        for each in self:
            if each.key == claim.key:
                if claim.epoch > each.epoch:
                    return each
                raise RefusedCommand(
                    ServerError.PRODUCER_BUSY,
                    f"a producer with the name {claim.name[:100]!r} is connected to the partition already",
                )
        return None

    def _check(self, claim: C, others: list[C], exclusive: C | None, waiting: list[C]) -> None:
        mode = claim.mode
        if mode is ProducerAccessMode.SHARED:
            if exclusive is not None or waiting:
                raise RefusedCommand(
                    ServerError.PRODUCER_BUSY, "another producer is, or waits to be, the only one there"
                )
            return
        if mode is ProducerAccessMode.EXCLUSIVE and (others or waiting):
            raise RefusedCommand(ServerError.PRODUCER_FENCED, "the partition has another producer already")
        is_late = claim.topic_epoch is not None and claim.topic_epoch < (self.topic_epoch or 0)
        if is_late:
            raise RefusedCommand(
                ServerError.PRODUCER_FENCED, "another producer has been the only one meanwhile"
            )

    def _begin(self, claim: C) -> None:
        """Only the producer that had the epoch last keeps it. A higher one is not known here, as after the
        topic was recreated, and a client may claim any number."""
        if self.topic_epoch is None:
            self.topic_epoch = 0
        elif claim.topic_epoch != self.topic_epoch:
            self.topic_epoch += 1
        self._exclusive = self._connected[claim.key] = claim

    def _remove(self, claim: C) -> None:
        if self._connected.get(claim.key) is claim:
            del self._connected[claim.key]
        if claim in self._waiting:
            self._waiting.remove(claim)
        if self._exclusive is claim:
            self._exclusive = None
