"""What a SEND costs: its memory is known before it is decompressed and read."""

import random
import tracemalloc

import pytest

from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from loghub_service.pulsar.broker.producers import decoding_budget_bytes, need_of
from loghub_service.pulsar.records.sends import SendSource, open_send, read_send
from loghub_service.pulsar.wire.producers import CommandSend, CompressionType
from tests.loghub_service.pulsar.client_messages import TestMessage, alone, batch

GROUP_BYTES = PulsarBrokerLimits().group_bytes
SLACK = 1 << 20  # of tables, and of a library's state
SEND = CommandSend(producer_id=1, sequence_id=0)
MANY = tuple((f"{number}", "") for number in range(4_000))
EXPENSIVE = {
    "messages of a byte": (RecordForm.RAW, [TestMessage(value=b"x")] * 4000),
    "empty objects": (RecordForm.JSON, [TestMessage(value=b"{}")] * 4000),
    "properties of a byte": (RecordForm.RAW, [TestMessage(properties=MANY)]),
    "members of a byte": (
        RecordForm.JSON,
        [TestMessage(value=b"{" + b",".join(b'"%d":1' % number for number in range(9_000)) + b"}")],
    ),
    "a large value": (RecordForm.PLAIN, [TestMessage(value=bytes(4 << 20))]),
    "random bytes": (RecordForm.RAW, [TestMessage(value=random.Random(1).randbytes(2 << 20))]),
}


@pytest.mark.parametrize(
    "how", [CompressionType.NONE, pytest.param(CompressionType.ZSTD, marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("name", EXPENSIVE)
def test_a_send_takes_no_more_memory_than_its_metadata_says(name: str, how: CompressionType) -> None:
    form, messages = EXPENSIVE[name]
    source = SendSource(producer="p", is_named=True, partition=0, form=form, max_bytes=GROUP_BYTES)
    read_send(SEND, open_send(SEND, batch(messages[:1], how)), source)  # tables and buffers that stay
    opened = open_send(SEND, batch(messages, how))
    need = need_of(opened, max_bytes=GROUP_BYTES)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read_send(SEND, opened, source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= need.memory + SLACK
    assert 2 * need.memory <= decoding_budget_bytes(GROUP_BYTES)


@pytest.mark.parametrize(
    ("messages", "thread"),
    [
        ([TestMessage()], False),
        ([TestMessage()] * 300, False),
        ([TestMessage()] * 301, True),
        ([TestMessage(value=bytes(70_000))], True),
    ],
)
@pytest.mark.parametrize("how", [CompressionType.NONE, CompressionType.LZ4])
def test_large_batches_are_read_in_a_thread(
    messages: list[TestMessage], thread: bool, how: CompressionType
) -> None:
    opened = open_send(SEND, batch(messages, how))
    assert need_of(opened, max_bytes=GROUP_BYTES).thread is thread


def test_what_a_producer_promises_is_no_more_than_what_is_accepted() -> None:
    opened = open_send(SEND, alone(TestMessage(), CompressionType.ZSTD))
    metadata = opened.metadata
    for size, count in ((1 << 32) - 1, 1), (5, (1 << 31) - 1), (5, -(1 << 31)):
        promised = type(metadata)(
            producer_name="p",
            sequence_id=0,
            publish_time=0,
            compression=metadata.compression,
            uncompressed_size=size,
            num_messages_in_batch=count,
        )
        need = need_of(opened._replace(metadata=promised), max_bytes=GROUP_BYTES)
        assert 0 < 2 * need.memory <= decoding_budget_bytes(GROUP_BYTES)
