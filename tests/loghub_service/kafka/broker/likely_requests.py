"""Requests as hostile as their classes allow, most of whose names and numbers nevertheless mean something.

`a_message` draws any value of a field, and a broker refuses nearly all of them at the first look. So most
fields are drawn from what the broker knows: its topics, a group with a member, an offset that is committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from loghub_service.kafka.wire.apis import Api
from loghub_service.kafka.wire.frames import RequestHeader
from tests.loghub_service.kafka.broker.broker_place import KEY, PROJECT, TOPIC, batch_of
from tests.loghub_service.kafka.client_frames import encode_request
from tests.loghub_service.kafka.wire.messages import a_message, fields_of

TOKEN = f"\0{PROJECT}\0{KEY.key_id}#{KEY.secret}".encode()


def _mostly(usual: Any, *others: Any) -> tuple[Any, ...]:
    """To draw from: two of three times the usual value."""
    return (usual,) * 2 * len(others) + others


TOKENS = (*[TOKEN] * 6, TOKEN[:-1], b"\0\0", b"\xff")
BATCHES = _mostly(
    batch_of("a"),
    batch_of("a", b"\0" * 300, "c"),
    batch_of("a", "b", producer=(7, 0, 0)),
    batch_of("a", "b", producer=(7, 0, 2)),
    batch_of("a") * 2,
    batch_of("a")[:-1],
    batch_of("a")[:-1] + b"\xff",
    b"",
)


@dataclass(frozen=True, slots=True)
class Known:
    """A group with one member in its generation 1, and one without members that has a committed offset."""

    group: str
    member: str
    idle_group: str

    def likely(self) -> Mapping[str, tuple[Any, ...]]:
        """Values of fields, by the name of the field or, first, by those of its class and it."""
        topics = _mostly(TOPIC, f"{TOPIC}.raw", f"{TOPIC}.json", "new", "")
        number = _mostly(0, 1, 2, -1)
        both = (self.group, self.idle_group)
        return {
            # names
            "name": topics,
            "CreatableTopic.name": _mostly(f"new-{self.group}", "new", TOPIC),
            "CreatableTopicConfig.name": ("retention.ms", "loghub.form"),
            "JoinGroupRequestProtocol.name": ("range",),
            "topic": topics,
            "topic_names": _mostly((TOPIC,), ("new",), ("new", "new")),
            "resource_name": (*topics, "0"),
            "configuration_keys": (None, ("retention.ms",)),
            "value": ("86400000", "raw", "-1", ""),
            "key": both,
            "group_id": _mostly(self.group, self.idle_group, ""),
            "groups": ((self.group,), both),
            "groups_names": ((self.idle_group,), both),
            "member_id": _mostly(self.member, ""),
            "group_instance_id": _mostly(None, "instance"),
            "protocol_type": ("consumer",),
            "transactional_id": (None,),
            "mechanism": (*["PLAIN"] * 8, "GSSAPI"),
            "auth_bytes": TOKENS,
            # numbers
            "index": number,
            "partition": number,
            "partition_index": number,
            "partition_indexes": ((0,), (0, 1, -1)),
            "num_partitions": _mostly(1, 2, -1, 0),
            "count": _mostly(4, 3, 5, 6, 8),
            "fetch_offset": _mostly(0, 1, 1 << 17),
            "partition_max_bytes": (1 << 20, 1, 0),
            "max_bytes": (1 << 20, 1, 0),
            "max_wait_ms": (0, 1),
            "timestamp": (-1, -2, 0, 1),
            "committed_offset": (0, 1, -1),
            "committed_metadata": (None, "note"),
            "generation_id": _mostly(1, -1),
            "session_timeout_ms": (100,),
            "rebalance_timeout_ms": (10, -1),
            "acks": _mostly(-1, 1, 0),
            "key_type": (0,),
            "resource_type": _mostly(2, 4),
            # arrays and bytes
            "CreatableTopic.assignments": ((),),
            "CreatePartitionsTopic.assignments": (None,),
            "records": BATCHES,
        }


@st.composite
def likely(draw: st.DrawFn, message: Struct, version: int, known: Known) -> Struct:
    """The message with most of its fields drawn again from what is known."""
    pools = known.likely()
    changes: dict[str, Any] = {}
    for name in fields_of(type(message), version):
        was = getattr(message, name)
        values = pools.get(f"{type(message).__name__}.{name}", pools.get(name))
        if values is not None and draw(st.integers(0, 11)):
            changes[name] = draw(st.sampled_from(values))
        elif isinstance(was, Struct):
            changes[name] = draw(likely(was, version, known))
        elif isinstance(was, tuple) and was and isinstance(was[0], Struct):
            changes[name] = tuple(draw(likely(one, version, known)) for one in was)
    return replace(message, **changes)


@st.composite
def requests(draw: st.DrawFn, api: Api, version: int, known: Known) -> bytes:
    """A well-formed request as a frame with its length."""
    header = RequestHeader(
        api_key=api.key,
        api_version=version,
        correlation_id=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        client_id=draw(st.sampled_from((None, "", "client", "\u00e9" * 200))),
    )
    dice = Random(draw(st.integers(0, 1 << 64)))
    message = a_message(api.request, version, dice, draw(st.sampled_from((1, 1, 1, 0))))
    return encode_request(header, draw(likely(message, version, known)))


@st.composite
def damaged(draw: st.DrawFn, frame: bytes) -> bytes:
    """A frame with some bytes changed, cut or added, whose length is right or was changed, too, or with
    another version."""
    changed = bytearray(frame)
    first = draw(st.sampled_from((0, 4, 4, 4, 12)))
    for _ in range(draw(st.integers(0, 3))):
        changed[draw(st.integers(min(first, len(frame) - 1), len(frame) - 1))] ^= 1 << draw(st.integers(0, 7))
    content = bytes(changed[4:])
    match draw(st.integers(0, 5)):
        case 0:
            return framed(content[: draw(st.integers(0, len(content)))])
        case 1:
            return framed(content + draw(st.binary(max_size=20)))
        case 2:
            return framed(content[:2] + draw(st.integers(0, 20)).to_bytes(2, "big") + content[4:])
        case _:
            return bytes(changed)


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
