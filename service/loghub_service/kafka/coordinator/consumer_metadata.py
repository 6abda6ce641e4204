"""Reads the topics from a consumer's metadata, which Kafka calls a subscription.

The coordinator passes metadata on without a change. It looks into it only to refuse the deletion of offsets
that the group uses: version (int16), and an array (int32) of topics (int16 and UTF-8 bytes); what follows is
not read (https://kafka.apache.org/41/design/protocol/, "ConsumerProtocolSubscription").
"""

import struct

# The protocol type of consumers; the groups of Kafka Connect and others have another one.
CONSUMER = "consumer"
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def logstore_of(topic: str) -> str:
    """The logstore of a topic. Topics of one logstore share their offsets. A logstore's name has no dot; the
    part of a topic's name after a dot is a form (docs/kafka.md 3)."""
    return topic.partition(".")[0]


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The names of the topics; None if the metadata is not a subscription."""
    topics = []
    try:
        (count,) = _INT32.unpack_from(metadata, _INT16.size)
        position = _INT16.size + _INT32.size
        for _ in range(count):  # bounded by the metadata: each topic takes bytes of it, or the reading fails
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.append(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
