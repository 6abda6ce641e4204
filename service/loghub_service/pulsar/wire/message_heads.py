"""What precedes the entry in a MESSAGE frame, written field by field.

Every log that a consumer of Shared or Key_Shared gets has a frame of its own, so this is most of what sending
costs: written here it takes a sixth of the time that the coder of `wire.codec` needs. A test compares both.
"""

import struct
from collections.abc import Iterable

from loghub.wire.protobuf import BYTES, VARINT, tag, varint
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.consumers import CommandMessage

_SIZES = struct.Struct(">II")
_LENGTH_BYTES = 4  # of the command, which the length of the frame counts
_NUMBER = COMMANDS[CommandMessage]
_BEGIN = tag(1, VARINT) + varint(_NUMBER) + tag(_NUMBER, BYTES)
_CONSUMER, _ID = tag(1, VARINT), tag(2, BYTES)
_REDELIVERIES, _ACK_SET, _EPOCH = tag(3, VARINT), tag(4, VARINT), tag(5, VARINT)
_LEDGER, _ENTRY, _PARTITION, _BATCH_SIZE = (tag(number, VARINT) for number in (1, 2, 3, 6))
_64_BITS = (1 << 64) - 1  # a negative word of an ack set becomes an unsigned varint
_VARINTS = tuple(map(varint, range(1 << 10)))  # entries of most log groups


class MessageHeads:
    """The heads of messages of one log group to one consumer; ``epoch`` None is not sent."""

    def __init__(self, *, consumer_id: int, ledger: int, partition: int, epoch: int | None) -> None:
        self._consumer = _CONSUMER + varint(consumer_id) + _ID
        self._ledger = _LEDGER + varint(ledger) + _ENTRY
        self._partition = _PARTITION + varint(partition)
        self._epoch = b"" if epoch is None else _EPOCH + varint(epoch)

    @property
    def parts(self) -> tuple[bytes, bytes, bytes, bytes]:
        """What all of them have: the consumer, the ledger, the partition, and the epoch."""
        return self._consumer, self._ledger, self._partition, self._epoch

    def head(
        self,
        entry: int,
        size: int,
        *,
        redeliveries: int = 0,
        batch_size: int | None = None,
        ack_set: Iterable[int] = (),
    ) -> bytes:
        """For an entry of so many bytes."""
        place = self._ledger + _varint(entry) + self._partition
        if batch_size is not None:
            place += _BATCH_SIZE + varint(batch_size)
        command = self._consumer + _varint(len(place)) + place
        if redeliveries:
            command += _REDELIVERIES + varint(redeliveries)
        for word in ack_set:
            command += _ACK_SET + varint(word & _64_BITS)
        command += self._epoch
        body = _BEGIN + _varint(len(command)) + command
        return _SIZES.pack(_LENGTH_BYTES + len(body) + size, len(body)) + body


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < len(_VARINTS) else varint(number)
