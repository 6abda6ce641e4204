"""MESSAGE frames of what the core has dealt out.

Ordered types get a log group as they were produced: one entry, whose messages that are acknowledged already
are marked in ``ack_set``. The others get each log as an entry of its own, with its own count of redeliveries.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from loghub.domain.log_position import ordinal_of, position_of
from loghub.wire import native
from loghub_service.pulsar.broker.ids import ack_set_of
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.pulsar.wire.message_heads import MessageHeads
from loghub_service.subscription.events import DeliveredRun


class Addressee(Protocol):
    """The consumer that gets the messages."""

    consumer_id: int
    is_open: bool
    turns: int  # in which it was active, if the subscription has one active consumer

    @property
    def is_ordered(self) -> bool: ...

    async def entries_of(self, ordinal: int) -> tuple[EntryToSend, ...] | None:
        """What is delivered of a log group of its shard; None if it has expired. Raises Unreadable."""

    def leave_out(self, runs: Sequence[DeliveredRun], entries: Sequence[EntryToSend]) -> int:
        """Pass on or acknowledge what no frame can carry of a log group, of which these runs were dealt.
        Returns how many logs that is; their permits are given back."""

    def give_back(self, logs: int) -> None:
        """Permits of logs that are not there any more."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Logs that wait for their turn on a connection, with the epoch that the consumer had when they were
    dealt, and the permits that they take. ``turn``: they are for that turn of the consumer only."""

    consumer: Addressee
    shard: int
    runs: list[DeliveredRun]
    epoch: int | None
    permits: int
    turn: int

    @property
    def is_wanted(self) -> bool:
        return self.consumer.is_open and self.turn == self.consumer.turns


# The head and the entry of a frame, and the number of logs that it takes of the permits.
MessageFrame = tuple[bytes, bytes, int]


def by_group(runs: Iterable[DeliveredRun]) -> Iterator[tuple[int, list[DeliveredRun]]]:
    """The runs of one log group after the other, with its ordinal."""
    for ordinal, of_group in groupby(runs, lambda run: ordinal_of(run[0])):
        yield ordinal, list(of_group)


def frames_in_pieces(
    out: Outgoing,
    ordinal: int,
    runs: list[DeliveredRun],
    entries: tuple[EntryToSend, ...],
    *,
    enough_bytes: int,
) -> Iterator[tuple[bytes, int]]:
    """The frames of what is dealt of one log group, in pieces that end with the frame that makes them large
    enough, each with the number of logs that it takes of the permits."""
    if out.consumer.is_ordered:
        return _pieces(ordered_frames(out, ordinal, runs, entries), enough_bytes)
    if native.is_installed:
        return _single_frames_by_native_part(out, ordinal, runs, entries, enough_bytes)
    return _pieces(single_frames(out, ordinal, runs, entries), enough_bytes)


def _pieces(frames: Iterable[MessageFrame], enough_bytes: int) -> Iterator[tuple[bytes, int]]:
    parts: list[bytes] = []
    size = logs = 0
    for head, data, of_entry in frames:
        parts += (head, data)
        size += len(head) + len(data)
        logs += of_entry
        if size >= enough_bytes:
            yield b"".join(parts), logs
            parts, size, logs = [], 0, 0
    if parts:
        yield b"".join(parts), logs


def ordered_frames(
    out: Outgoing, ordinal: int, runs: list[DeliveredRun], entries: tuple[EntryToSend, ...]
) -> Iterator[MessageFrame]:
    """One for each entry of a group of which something is left."""
    heads = _heads(out, ordinal)
    for entry in entries:
        first = position_of(entry.ordinal, entry.first)
        stop = first + entry.messages
        left = [(max(a, first), min(b, stop)) for a, b, _ in runs if a < stop and b > first]
        if left and entry.data is not None:
            ack_set = ack_set_of(left, first=first, logs=entry.messages)
            size = len(entry.data)
            head = heads.head(entry.first, size, batch_size=entry.batch_size, ack_set=ack_set)
            yield head, entry.data, entry.messages


def _single_frames_by_native_part(
    out: Outgoing, ordinal: int, runs: list[DeliveredRun], entries: tuple[EntryToSend, ...], enough_bytes: int
) -> Iterator[tuple[bytes, int]]:
    """What `single_frames` makes, piece by piece: a consumer that reads slowly costs the memory of one."""
    parts, begin = _heads(out, ordinal).parts, position_of(ordinal)
    place = (0, 0)
    while place[0] < len(runs):
        made = native.frames_of(parts, entries, runs, (begin, place), enough_bytes)
        assert made is not None  # nothing of it is unusual
        data, logs, place = made
        if logs:
            yield data, logs


def single_frames(
    out: Outgoing, ordinal: int, runs: list[DeliveredRun], entries: tuple[EntryToSend, ...]
) -> Iterator[MessageFrame]:
    """One for each log."""
    heads = _heads(out, ordinal)
    begin = position_of(ordinal)
    for first, stop, redeliveries in runs:
        for index in range(first - begin, min(stop - begin, len(entries))):
            data = entries[index].data
            if data is not None:
                yield heads.head(index, len(data), redeliveries=redeliveries), data, 1


def _heads(out: Outgoing, ordinal: int) -> MessageHeads:
    return MessageHeads(
        consumer_id=out.consumer.consumer_id, ledger=ordinal, partition=out.shard, epoch=out.epoch
    )


def logs_in(runs: Iterable[DeliveredRun]) -> int:
    """How many logs there are at most; of a run that stops in the next group it is not known."""
    return sum(stop - first for first, stop, _ in runs if ordinal_of(stop) == ordinal_of(first))
