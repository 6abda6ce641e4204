"""What the leader of a consumer group writes for its members: assignments.

A coordinator passes both on unread. It reads a copy only where an answer depends on it: OffsetDelete refuses
topics that the group is subscribed to, and a status shows who has which partition. The first two bytes are
a version; newer versions append fields, so what follows the known ones is ignored
(https://kafka.apache.org/documentation/#impl_consumer, KIP-429).
"""

from typing import Any

from msgspec import Struct

from loghub.kafka.wire.codec import coder_of
from loghub.kafka.wire.errors import MalformedFrame
from loghub.kafka.wire.fields import Int16, Int32, Records, String
from loghub.kafka.wire.reader import MAX_REQUEST_ELEMENTS, Buffer, Reader

# The protocol type of groups whose members write these messages.
CONSUMER_PROTOCOL_TYPE = "consumer"


class AssignedTopic(Struct, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: String
    partitions: tuple[Int32, ...]


class ConsumerAssignment(Struct, frozen=True, kw_only=True):
    """The fields of version 0: the partitions of one member, and bytes of its assignor."""

    version: Int16 = 0
    assigned_partitions: tuple[AssignedTopic, ...]
    user_data: Records = None


def decode_assignment(assignment: Buffer) -> ConsumerAssignment:
    """The assignment that a leader wrote for a member. Raises MalformedFrame, also for no bytes at all."""
    decoded: ConsumerAssignment = _decode(ConsumerAssignment, assignment)
    return decoded


def _decode(message: type[Struct], content: Buffer) -> Any:
    value = coder_of(message, 0).decode(Reader(content, max_elements=MAX_REQUEST_ELEMENTS))
    if value.version < 0:
        raise MalformedFrame(f"version {value.version} of the consumer protocol")
    return value
