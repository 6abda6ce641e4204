"""Message ids and positions.

An id consists of a ledger, an entry and, inside a batch, an index. The ledger is the ordinal of a log group,
and the sum of entry and index is the index of a log in the group. So both forms of delivery name a log by the
same position (docs/pulsar-protocol.md 3): a batch has the entry of its first log, and a log that is delivered
on its own has the entry of its own index.

A set of acknowledgements has a bit for each message of a batch, 64 in each number, and a message whose bit is
not set is acknowledged. Zeros at its end may be left out.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from loghub.domain.log_position import INDEX_BITS, index_of, ordinal_of, position_of
from loghub.wire import native
from loghub_service.pulsar.wire.codec import MAX_FIELDS
from loghub_service.pulsar.wire.consumers import AckType, CommandAck
from loghub_service.pulsar.wire.frames import MAX_COMMAND_BYTES
from loghub_service.pulsar.wire.values import EARLIEST, LATEST, MessageIdData

_WORD_BITS = 64  # an ack set is a list of signed 64-bit words
_MASK = (1 << _WORD_BITS) - 1
# The entry before the first one of a ledger, as all three clients compute it.
BEFORE_FIRST = (1 << 64) - 1
_MAX_ORDINAL = 1 << 62
Run = tuple[int, int]


class LogBound(Enum):
    """A place that an id names without numbers."""

    EARLIEST = auto()
    LATEST = auto()


class BadId(ValueError):  # noqa: N818 - says what
    """No log group can have such an id."""


class AckedEntries(NamedTuple):
    """An ACK of whole entries, by the native part: the ``command`` without its ids, their number, and the
    positions at which the entries begin, as ascending runs that are joined inside a log group."""

    command: CommandAck
    ids: int
    runs: list[Run]


def acked_entries(frame: bytes) -> AckedEntries | None:
    """None for a frame that `loghub_service.pulsar.wire.frames.decode_frame` has to decode."""
    found = native.acked_entries(frame, INDEX_BITS, MAX_FIELDS) if len(frame) <= MAX_COMMAND_BYTES else None
    if found is None:
        return None
    consumer_id, request_id, count, runs = found
    command = CommandAck(consumer_id=consumer_id, ack_type=AckType.INDIVIDUAL, request_id=request_id)
    return AckedEntries(command, count, runs)


def entry_position(message: MessageIdData) -> int:
    """The position of the first log of an entry. Raises BadId."""
    if message.ledger_id >= _MAX_ORDINAL or message.entry_id > 1 << INDEX_BITS:
        raise BadId(f"there is no message id {message.ledger_id}:{message.entry_id}")
    return position_of(message.ledger_id, message.entry_id)


def start_of(message: MessageIdData) -> "int | LogBound":
    """Where a reader begins, the entry included: the client itself picks the messages of the entry that it
    wants. Raises BadId."""
    if message.ledger_id == message.entry_id == EARLIEST:
        return LogBound.EARLIEST
    if message.ledger_id == message.entry_id == LATEST:
        return LogBound.LATEST
    if message.entry_id == BEFORE_FIRST:
        return position_of(min(message.ledger_id, _MAX_ORDINAL))
    return entry_position(message)


def seek_target(message: MessageIdData) -> "int | LogBound":
    """Where SEEK goes, the message included. Inside a batch, Go names it by its index and Java by the
    messages that are left; Python names the entry, and leaves out the rest itself. Raises BadId."""
    start = start_of(message)
    if isinstance(start, LogBound) or message.entry_id == BEFORE_FIRST:
        return start
    if message.ack_set:
        return start + (first_set(message.ack_set) or 0)
    return start + max(message.batch_index, 0)


def acknowledged(message: MessageIdData, *, logs: int) -> list[Run]:
    """The logs that an individual acknowledgement names in an entry with this many logs. Raises BadId."""
    first = entry_position(message)
    if not message.ack_set:
        return [(first, first + logs)]
    return [(first + start, first + stop) for start, stop in clear_runs(message.ack_set, size=logs)]


def acknowledged_up_to(message: MessageIdData, *, logs: int) -> int:
    """The position below which a cumulative acknowledgement names everything, if the entry has this many
    logs. Raises BadId."""
    if message.entry_id == BEFORE_FIRST:
        return position_of(min(message.ledger_id, _MAX_ORDINAL))
    first = entry_position(message)
    left = first_set(message.ack_set)
    return first + (logs if left is None else min(left, logs))


def ack_set_of(unacked: Iterable[Run], *, first: int, logs: int) -> tuple[int, ...]:
    """The set of acknowledgements for an entry of which only these logs are left, given by their positions;
    empty if all are left."""
    bits = 0
    for start, stop in unacked:
        bits |= ((1 << (stop - start)) - 1) << (start - first)
    if bits == (1 << logs) - 1:
        return ()
    words = []
    while bits:
        words.append(_signed(bits & _MASK))
        bits >>= _WORD_BITS
    return tuple(words)


def clear_runs(ack_set: tuple[int, ...], *, size: int) -> Iterator[Run]:
    """The runs of indexes below ``size`` whose bit is not set."""
    bits = _bits(ack_set)
    at = 0
    while at < size:
        rest = bits >> at
        stop = size if not rest else min(size, at + (rest & -rest).bit_length() - 1)
        if stop > at:
            yield at, stop
        rest = bits >> stop
        # Beyond the run of ones: the lowest bit that is not set.
        at = stop + (~rest & (rest + 1)).bit_length() - 1


def first_set(ack_set: tuple[int, ...]) -> int | None:
    """The lowest index whose bit is set; None if none is."""
    bits = _bits(ack_set)
    return (bits & -bits).bit_length() - 1 if bits else None


def _bits(ack_set: tuple[int, ...]) -> int:
    return int.from_bytes(b"".join((word & _MASK).to_bytes(8, "little") for word in ack_set), "little")


def _signed(word: int) -> int:
    return word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word


def entry_id(
    position: int, *, partition: int, batch_index: int = -1, batch_size: int | None = None
) -> MessageIdData:
    """The id of the entry whose first log has this position."""
    return MessageIdData(
        ledger_id=ordinal_of(position),
        entry_id=index_of(position),
        partition=partition,
        batch_index=batch_index,
        batch_size=batch_size,
    )


def nothing_before(ordinal: int, *, partition: int) -> MessageIdData:
    """The id that precedes all messages from a log group on."""
    return MessageIdData(ledger_id=ordinal, entry_id=BEFORE_FIRST, partition=partition)


def no_message(partition: int) -> MessageIdData:
    """The last message of a partition that has none."""
    return MessageIdData(ledger_id=EARLIEST, entry_id=EARLIEST, partition=partition)
