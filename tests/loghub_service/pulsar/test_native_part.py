"""The native part does for Pulsar what Python does: the same bytes, slots and positions, or it leaves a case
to Python. Each test needs the wheel; without it there is one implementation, and nothing to compare."""

import contextlib
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loghub.domain.log_position import INDEX_BITS, position_of
from loghub.wire import native
from loghub.wire.errors import MalformedLogGroup
from loghub.wire.loggroup import Log, LogGroup, encode, raw_logs
from loghub_service.dispatch.keys import slots_in_python, slots_of
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.delivery import Outgoing, frames_in_pieces
from loghub_service.pulsar.broker.dispatch_entries import joined_runs
from loghub_service.pulsar.broker.ids import acked_entries, entry_position
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import EntryEncoder, EntryToSend, GroupToSend
from loghub_service.pulsar.records.sends import SentGroup
from loghub_service.pulsar.wire.codec import MAX_FIELDS
from loghub_service.pulsar.wire.consumers import AckType, CommandAck
from loghub_service.pulsar.wire.errors import MalformedCommand, RefusedMessage
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, decode_frame, encode_frame
from loghub_service.pulsar.wire.values import FirstChunkIdData, MessageIdData
from loghub_service.subscription.events import DeliveredRun
from tests.loghub_service.kafka.records.test_to_batch import IMPORTED, groups
from tests.loghub_service.pulsar.client_messages import ORDINAL, RECEIVED_MS, TestMessage, batch, sent
from tests.loghub_service.pulsar.records.test_entries import MESSAGES
from tests.loghub_service.pulsar.wire.messages import messages_of
from tests.loghub_service.tiers import SingleAddressee, without_native_part

pytestmark = pytest.mark.skipif(not native.is_installed, reason="without cargo there is no native part")
EXAMPLES = pytest.mark.parametrize("examples", [100, pytest.param(2_000, marks=pytest.mark.deep)])
T = TypeVar("T")
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4)
# Names of fields with a meaning, as producers of each kind write them, and others.
RAW_NAMES = st.sampled_from(
    ["key", "value", "ordering_key", "header.a", "header.\u65e5", "null_header.b", "other", *IMPORTED]
)
RAW_GROUPS = st.lists(
    st.lists(
        st.tuples(RAW_NAMES, st.binary(max_size=8) | st.sampled_from([b"", b"text", b"y" * 300])), max_size=6
    ),
    min_size=1,
    max_size=8,
).map(lambda logs: _group_of(tuple(tuple(contents) for contents in logs)))


def _group_of(logs: tuple[tuple[tuple[str, bytes], ...], ...]) -> LogGroup:
    return LogGroup(
        logs=tuple(
            Log(time=1_700_000_000 + number, time_ns=number * 1_000_000, contents=contents)
            for number, contents in enumerate(logs)
        )
    )


def in_python(work: Callable[[], T]) -> T:
    with pytest.MonkeyPatch.context() as patch:
        without_native_part(patch)
        return work()


@st.composite
def to_send(draw: st.DrawFn) -> GroupToSend:
    """A group of any writer, with an origin of a producer of Pulsar or without one."""
    group = encode(draw(groups() | RAW_GROUPS))
    logs = sum(1 for _ in raw_logs(group))
    flags = st.integers(0, 3).map(lambda flag: bytes((flag,))) | st.binary(min_size=logs, max_size=logs).map(
        lambda text: bytes(byte & 3 for byte in text)
    )
    origin = st.builds(
        PulsarOrigin,
        partition=st.just(0),
        producer=st.sampled_from(["p", "\u65e5", ""]),
        sequence=st.integers(0, 1 << 40) | st.just((1 << 63) - 1 - logs),
        highest=st.just(0),
        publish_ms=st.integers(0, 1 << 42),
        is_batch=st.just(True),
        is_named=st.booleans(),
        flags=flags,
        schema_version=st.sampled_from([b"", b"\0\1"]),
        late_event_ms=st.none() | st.just({0: 1 << 45}),
    )
    return GroupToSend(ORDINAL, group, draw(st.none() | origin), RECEIVED_MS, draw(st.booleans()), logs)


@EXAMPLES
def test_entries_have_the_same_bytes_in_both_forms(examples: int) -> None:
    used = 0

    @settings(max_examples=examples, deadline=None)
    @given(to_send(), st.booleans(), st.sampled_from([1 << 20, 300, 40]))
    def check(group: GroupToSend, in_batches: bool, limit: int) -> None:
        nonlocal used
        expected = EntryEncoder(group, limit).all_in_python(in_batches=in_batches)
        assert EntryEncoder(group, limit).all(in_batches=in_batches) == expected
        is_late = group.origin is not None and group.origin.late_event_ms is not None
        used += limit == 1 << 20 and not is_late

    check()
    assert used > examples // 10


@EXAMPLES
def test_a_usual_group_is_not_left_to_python(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(groups(), st.booleans())
    def check(group: LogGroup, in_batches: bool) -> None:
        logs = len(group.logs)
        found = native.entries_of(
            encode(group), False, in_batches, b"", (ORDINAL, 5), b"\1", (1 << 20, 1 << 20)
        )
        assert found is not None
        assert sum(entry[2] for entry in found) == logs
        assert len(found) == (1 if in_batches else logs)

    check()


@EXAMPLES
def test_logs_have_the_same_slots(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(to_send(), st.lists(RAW_NAMES, max_size=3, unique=True))
    def check(group: GroupToSend, fields: list[str]) -> None:
        assert slots_of(group, fields) == slots_in_python(group, [field.encode() for field in fields])

    check()


@pytest.mark.parametrize("size", [*range(1, 9), 1023, 1024, 1025, 5000])
def test_keys_of_every_length_have_the_same_slot(size: int) -> None:
    """Python replaces a key of more than 1,024 bytes by its digest."""
    key = random.Random(size).randbytes(size)
    group = encode(_group_of(((("key", key), ("value", b"")),)))
    to_give = GroupToSend(ORDINAL, group, None, RECEIVED_MS, True, 1)
    for fields in ((), ("key",)):
        assert slots_of(to_give, fields) == slots_in_python(to_give, [field.encode() for field in fields])


@EXAMPLES
def test_batches_become_the_same_log_group(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(MESSAGES, st.sampled_from(RecordForm))
    def check(messages: list[TestMessage], form: RecordForm) -> None:
        entry = batch(messages)
        made = outcome(lambda: sent(entry, form, messages=len(messages)))
        assert made == in_python(lambda: outcome(lambda: sent(entry, form, messages=len(messages))))

    check()


def outcome(work: Callable[[], SentGroup]) -> SentGroup | str:
    try:
        return work()
    except RefusedMessage as error:
        return str(error)


@EXAMPLES
def test_damaged_batches_have_the_same_outcome(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(MESSAGES, CHANGES)
    def check(messages: list[TestMessage], changes: list[tuple[int, int]]) -> None:
        body = bytearray(batch(messages)[6:])  # without the checksum, which clients may leave out
        for at, byte in changes:
            body[at % len(body)] = byte
        entry = bytes(body)
        made = outcome(lambda: sent(entry, messages=len(messages)))
        assert made == in_python(lambda: outcome(lambda: sent(entry, messages=len(messages))))

    check()


@EXAMPLES
def test_damaged_groups_become_the_same_entries_or_are_refused(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        to_send(),
        st.booleans(),
        CHANGES,
    )
    def check(group: GroupToSend, in_batches: bool, changes: list[tuple[int, int]]) -> None:
        body = bytearray(group.group)
        for at, byte in changes:
            body[at % len(body)] = byte
        damaged = GroupToSend(ORDINAL, bytes(body), None, RECEIVED_MS, group.raw, group.logs)
        try:
            made = EntryEncoder(damaged, 1 << 20).all(in_batches=in_batches)
        except MalformedLogGroup:
            return
        assert made == EntryEncoder(damaged, 1 << 20).all_in_python(in_batches=in_batches)
        with contextlib.suppress(MalformedLogGroup):
            assert slots_of(damaged, ()) == slots_in_python(damaged, ())

    check()


# Ids of the entries of a few groups, with what clients add to them.
IDS = st.builds(
    MessageIdData,
    ledger_id=st.integers(0, 3) | st.integers(0, 1 << 45),
    entry_id=st.integers(0, 5) | st.just((1 << INDEX_BITS) - 1),
    partition=st.integers(-1, 3),
    batch_index=st.integers(-1, 3),
    batch_size=st.none() | st.just(4),
)
ACKS = st.builds(
    CommandAck,
    consumer_id=st.integers(0, (1 << 64) - 1),
    ack_type=st.just(AckType.INDIVIDUAL),
    message_id=st.lists(IDS, max_size=20).map(tuple),
    request_id=st.none() | st.integers(0, (1 << 64) - 1),
)


def check_ack(frame: bytes) -> bool:
    """Whether the native part has read it."""
    found = acked_entries(frame)
    if found is None:
        return False
    command, entry = decode_frame(frame)
    assert entry is None
    assert isinstance(command, CommandAck)
    assert (command.consumer_id, command.request_id) == (found.command.consumer_id, found.command.request_id)
    assert command.ack_type is AckType.INDIVIDUAL
    assert not any(each.ack_set for each in command.message_id)
    assert (command.txnid_least_bits, command.txnid_most_bits) == (0, 0)
    firsts = map(entry_position, command.message_id)
    assert (found.ids, found.runs) == (
        len(command.message_id),
        joined_runs((first, first + 1) for first in firsts),
    )
    return True


@EXAMPLES
def test_acknowledged_entries_are_the_same_runs(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(ACKS)
    def check(ack: CommandAck) -> None:
        assert check_ack(encode_frame(ack)[LENGTH_BYTES:])

    check()


@pytest.mark.parametrize("examples", [40, pytest.param(1_000, marks=pytest.mark.deep)])
def test_every_other_frame_is_left_to_python_or_read_alike(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        messages_of(CommandAck) | ACKS,
        CHANGES,
    )
    def check(ack: CommandAck, changes: list[tuple[int, int]]) -> None:
        frame = bytearray(encode_frame(ack)[LENGTH_BYTES:])
        check_ack(bytes(frame))
        for at, byte in changes:
            frame[at % len(frame)] = byte
        check_ack(bytes(frame))
        check_ack(bytes(frame[:-1]))

    check()


@pytest.mark.parametrize(
    "odd",
    [
        {"entry_id": 1 << INDEX_BITS},
        {"ledger_id": 1 << 46},
        {"ack_set": (1,)},
        {"first_chunk_message_id": FirstChunkIdData(ledger_id=0, entry_id=0)},
    ],
)
def test_an_id_of_something_else_leaves_its_ack_to_python(odd: dict[str, Any]) -> None:
    usual = MessageIdData(ledger_id=1, entry_id=1)
    named = (usual, MessageIdData(**{"ledger_id": 1, "entry_id": 2, **odd}))
    ack = CommandAck(consumer_id=1, ack_type=AckType.INDIVIDUAL, message_id=named)
    assert not check_ack(encode_frame(ack)[LENGTH_BYTES:])
    assert check_ack(encode_frame(replace(ack, message_id=(usual,)))[LENGTH_BYTES:])
    assert not check_ack(encode_frame(replace(ack, ack_type=AckType.CUMULATIVE))[LENGTH_BYTES:])


def test_an_ack_of_more_fields_than_python_reads_is_left_to_it() -> None:
    one = MessageIdData(ledger_id=1, entry_id=1, partition=0, batch_index=0)
    frame = encode_frame(
        CommandAck(consumer_id=1, ack_type=AckType.INDIVIDUAL, message_id=(one,) * (MAX_FIELDS // 5))
    )[LENGTH_BYTES:]
    assert acked_entries(frame) is None
    with pytest.raises(MalformedCommand, match="fields"):
        decode_frame(frame)


@EXAMPLES
def test_single_messages_have_the_same_frames(examples: int) -> None:
    begin = position_of(ORDINAL)

    @settings(max_examples=examples, deadline=None)
    @given(
        st.lists(
            st.none() | st.binary(min_size=1, max_size=9) | st.just(b"x" * 200), min_size=1, max_size=200
        ),
        st.lists(st.tuples(st.integers(0, 210), st.integers(1, 90), st.integers(0, 300)), max_size=6),
        st.none() | st.integers(0, 1 << 40),
        st.sampled_from([1, 100, 1 << 16]),
    )
    def check(
        data: list[bytes | None], spans: list[tuple[int, int, int]], epoch: int | None, enough: int
    ) -> None:
        entries = tuple(EntryToSend(ORDINAL, index, 1, None, each) for index, each in enumerate(data))
        runs: list[DeliveredRun] = [
            (begin + first, begin + first + size, times) for first, size, times in spans
        ]
        out = Outgoing(consumer=SingleAddressee(), shard=7, runs=runs, epoch=epoch, permits=0, turn=0)
        made = list(frames_in_pieces(out, ORDINAL, runs, entries, enough_bytes=enough))
        assert made == in_python(
            lambda: list(frames_in_pieces(out, ORDINAL, runs, entries, enough_bytes=enough))
        )
        assert all(len(piece) >= enough for piece, _ in made[:-1])

    check()
