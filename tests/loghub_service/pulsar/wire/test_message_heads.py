"""The head of a MESSAGE, as the coder of all commands would write it."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_service.pulsar.wire.consumers import CommandMessage
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, decode_frame
from loghub_service.pulsar.wire.message_heads import MessageHeads
from loghub_service.pulsar.wire.values import MessageIdData

UINT63 = st.integers(min_value=0, max_value=(1 << 63) - 1)
INT31 = st.integers(min_value=0, max_value=(1 << 31) - 1)
WORDS = st.lists(st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1), max_size=3).map(tuple)


@given(
    consumer=UINT63,
    place=st.tuples(UINT63, UINT63, INT31),
    epoch=st.none() | UINT63,
    redeliveries=INT31,
    batch_size=st.none() | INT31,
    ack_set=WORDS,
    entry=st.binary(min_size=1, max_size=100),
)
def test_the_head_says_what_the_command_says(
    consumer: int,
    place: tuple[int, int, int],
    epoch: int | None,
    redeliveries: int,
    batch_size: int | None,
    ack_set: tuple[int, ...],
    entry: bytes,
) -> None:
    ledger, number, partition = place
    heads = MessageHeads(consumer_id=consumer, ledger=ledger, partition=partition, epoch=epoch)
    frame = heads.head(number, len(entry), redeliveries=redeliveries, batch_size=batch_size, ack_set=ack_set)
    frame += entry
    assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
    command, rest = decode_frame(frame[LENGTH_BYTES:])
    assert command == CommandMessage(
        consumer_id=consumer,
        message_id=MessageIdData(
            ledger_id=ledger, entry_id=number, partition=partition, batch_size=batch_size
        ),
        redelivery_count=redeliveries,
        ack_set=ack_set,
        consumer_epoch=epoch,
    )
    assert rest == entry
