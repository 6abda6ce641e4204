"""Record batches against the builders and readers of kafka-python and aiokafka."""

import contextlib
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import cramjam
import google_crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from loghub_service.kafka.wire.batch_compression import BatchCompression
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode, UnencodableValue
from loghub_service.kafka.wire.record_batch import (
    HEADER_BYTES,
    MAX_RECORDS,
    Record,
    read_header,
    read_produced,
)
from tests.loghub_service.kafka.client_batches import build_batch
from tests.loghub_service.kafka.wire.messages import EXAMPLES, a_text
from tests.suite.seed import of_run

# The attributes are behind the checksum, the leader epoch before it.
CHECKSUM_AT, ATTRIBUTES_AT, LEADER_EPOCH = 17, 21, slice(12, 16)
MAX_BYTES = 1 << 20
MAX_GENERATED_RECORDS = 20
SAMPLE = [Record(b"key", b"value" * 100, (), 1000 + n) for n in range(50)]


def some_records(examples: int) -> Iterator[list[Record]]:
    """So many lists of random records; the first one has a single record."""
    dice = Random(of_run())

    def content() -> bytes | None:
        return None if dice.random() < 0.2 else dice.randbytes(dice.randrange(40))

    def record() -> Record:
        headers = tuple((a_text(dice), content()) for _ in range(dice.randint(0, 3)))
        return Record(content(), content(), headers, dice.randrange(1 << dice.randrange(43)))

    for number in range(examples):
        yield [record() for _ in range(dice.randint(1, MAX_GENERATED_RECORDS) if number else 1)]


def theirs(builder: Any, records: Sequence[Record], how: BatchCompression, **producer: int) -> bytes:
    """A batch as one of the two clients builds it."""
    state = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | producer
    batch = builder(magic=2, compression_type=int(how), is_transactional=False, batch_size=1 << 24, **state)
    for offset, record in enumerate(records):
        headers = list(record.headers)
        batch.append(offset, record.timestamp, record.key, record.value, headers)
    return bytes(batch.build())


def changed(batch: bytes, at: int, layout: str, *values: int) -> bytes:
    """The batch with other values at a position of its header, and the checksum that belongs to them."""
    copy = bytearray(batch)
    struct.pack_into(layout, copy, at, *values)
    struct.pack_into(">I", copy, CHECKSUM_AT, google_crc32c.value(bytes(copy[ATTRIBUTES_AT:])))
    return bytes(copy)


def refusal(batch: bytes | None, *, api_version: int = 7, max_bytes: int = MAX_BYTES) -> ErrorCode:
    with pytest.raises(BadBatch) as caught:
        list(read_produced(batch, api_version=api_version, max_bytes=max_bytes).records)
    return caught.value.code


@EXAMPLES
def test_a_batch_is_the_one_that_aiokafka_builds(examples: int) -> None:
    for records in some_records(examples):
        assert build_batch(records) == theirs(AiokafkaBuilder, records, BatchCompression.NONE)


@EXAMPLES
def test_a_batch_is_the_one_that_kafka_python_builds_but_for_the_leader_epoch(examples: int) -> None:
    for records in some_records(examples):
        ours, expected = (
            bytearray(build_batch(records)),
            bytearray(theirs(KafkaPythonBuilder, records, BatchCompression.NONE)),
        )
        ours[LEADER_EPOCH] = expected[LEADER_EPOCH] = bytes(4)
        assert ours == expected


@EXAMPLES
@pytest.mark.parametrize("base_offset", [0, 1, (1 << 17) - 1, 2**62])
def test_a_batch_at_another_offset_is_read_by_both(base_offset: int, examples: int) -> None:
    for records in some_records(examples):
        batch = build_batch(records, base_offset=base_offset)
        for reader in (AiokafkaBatch, KafkaPythonBatch):
            found = reader(batch)
            assert found.validate_crc()
            assert [
                (each.offset, Record(each.key, each.value, tuple(each.headers), each.timestamp))
                for each in found
            ] == list(enumerate(records, base_offset))


@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder])
@pytest.mark.parametrize("how", list(BatchCompression))
@EXAMPLES
def test_batches_of_clients_are_read(how: BatchCompression, builder: Any, examples: int) -> None:
    if builder is KafkaPythonBuilder and how is BatchCompression.SNAPPY:
        # It needs a package of its own for it; aiokafka writes the same framing.
        builder = AiokafkaBuilder
    for records in some_records(examples):
        batch = theirs(builder, records, how, producer_id=5, producer_epoch=2, base_sequence=9)
        found = read_produced(memoryview(batch), api_version=7, max_bytes=MAX_BYTES)
        assert list(found.records) == records
        header = found.header
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 9)
        assert (header.record_count, header.last_offset_delta) == (len(records), len(records) - 1)
        assert header.size == len(batch)
        assert header.base_timestamp == records[0].timestamp
        assert header.max_timestamp == max(record.timestamp for record in records)


def compressed(records: bytes, how: BatchCompression) -> bytes:
    """GOOD with other bytes in place of its records."""
    batch = bytearray(GOOD[:HEADER_BYTES] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return changed(bytes(batch), ATTRIBUTES_AT, ">h", how)


def test_snappy_is_read_as_one_block_and_as_blocks_of_java() -> None:
    """librdkafka writes the first, Java and aiokafka the second."""
    records = GOOD[HEADER_BYTES:]
    block = bytes(cramjam.snappy.compress_raw(records))
    halves = [bytes(cramjam.snappy.compress_raw(part)) for part in (records[:999], records[999:])]
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(half)) + half for half in halves)
    for body in (block, framed):
        batch = compressed(body, BatchCompression.SNAPPY)
        assert list(read_produced(batch, api_version=7, max_bytes=MAX_BYTES).records) == SAMPLE
    for body in (framed[:-1], framed + b"\0", block[:-1], framed[:16] + b"\xff" * 8):
        assert refusal(compressed(body, BatchCompression.SNAPPY)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("body", "how"),
    [
        # Sizes that the compressed bytes claim: 2^31 - 1 by snappy, 2^62 by lz4 and by zstd.
        (b"\xff\xff\xff\xff\x07\x00", BatchCompression.SNAPPY),
        (
            bytes.fromhex("04224d186c40") + (1 << 62).to_bytes(8, "little") + b"\x6c" + bytes(9),
            BatchCompression.LZ4,
        ),
        (bytes.fromhex("28b52ffde0") + (1 << 62).to_bytes(8, "little") + bytes(9), BatchCompression.ZSTD),
    ],
)
def test_a_claimed_size_takes_no_memory(body: bytes, how: BatchCompression) -> None:
    tracemalloc.start()
    try:
        assert refusal(compressed(body, how)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
        assert tracemalloc.get_traced_memory()[1] < 2 * MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("how", list(BatchCompression)[1:])
def test_a_batch_may_not_decompress_to_more_than_allowed(how: BatchCompression) -> None:
    batch = theirs(AiokafkaBuilder, [Record(None, bytes(200_000), (), 0)], how)
    assert len(batch) < 10_000 or how is BatchCompression.SNAPPY
    assert refusal(batch, max_bytes=100_000) is ErrorCode.MESSAGE_TOO_LARGE
    assert next(read_produced(batch, api_version=7, max_bytes=210_000).records).value == bytes(200_000)


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = changed(build_batch(SAMPLE), ATTRIBUTES_AT, ">h", 0x08)
    records = list(read_produced(batch, api_version=7, max_bytes=MAX_BYTES).records)
    assert {record.timestamp for record in records} == {SAMPLE[-1].timestamp}


GOOD = build_batch(SAMPLE)
LAST_OFFSET_DELTA_AT, PRODUCER_ID_AT, COUNT_AT = 23, 43, 57


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(GOOD[:40], ErrorCode.CORRUPT_MESSAGE, id="half a header"),
        pytest.param(GOOD[:-1], ErrorCode.CORRUPT_MESSAGE, id="truncated"),
        pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(GOOD[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(GOOD[:16] + b"\0" + GOOD[17:], ErrorCode.INVALID_RECORD, id="format 0"),
        pytest.param(GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.INVALID_RECORD, id="format 1"),
        pytest.param(changed(GOOD, ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD, id="control"),
        pytest.param(
            changed(GOOD, ATTRIBUTES_AT, ">h", 0x10),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transaction",
        ),
        pytest.param(
            changed(GOOD, ATTRIBUTES_AT, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec 5"
        ),
        *(
            pytest.param(
                changed(GOOD, ATTRIBUTES_AT, ">h", how), ErrorCode.CORRUPT_MESSAGE, id=f"not {how.name}"
            )
            for how in list(BatchCompression)[1:]
        ),
        pytest.param(
            changed(GOOD, LAST_OFFSET_DELTA_AT, ">i", 0x1FFFF), ErrorCode.INVALID_RECORD, id="offset gap"
        ),
        pytest.param(
            changed(changed(GOOD, COUNT_AT, ">i", 49), LAST_OFFSET_DELTA_AT, ">i", 48),
            ErrorCode.INVALID_RECORD,
            id="too few",
        ),
        pytest.param(
            changed(changed(GOOD, COUNT_AT, ">i", 51), LAST_OFFSET_DELTA_AT, ">i", 50),
            ErrorCode.INVALID_RECORD,
            id="too many",
        ),
        pytest.param(
            changed(changed(GOOD, COUNT_AT, ">i", MAX_RECORDS + 1), LAST_OFFSET_DELTA_AT, ">i", MAX_RECORDS),
            ErrorCode.MESSAGE_TOO_LARGE,
            id="more than a log group numbers",
        ),
        pytest.param(
            changed(GOOD, COUNT_AT, ">i", 0x7FFFFFFF), ErrorCode.MESSAGE_TOO_LARGE, id="claimed number"
        ),
        pytest.param(changed(GOOD, COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(
            changed(GOOD, PRODUCER_ID_AT, ">qhi", 1, 0, -1), ErrorCode.INVALID_RECORD, id="no sequence"
        ),
    ],
)
def test_a_batch_is_refused_with_the_code_of_a_kafka_broker(batch: bytes | None, code: ErrorCode) -> None:
    assert refusal(batch) is code


def test_zstd_needs_version_7_of_produce() -> None:
    batch = theirs(AiokafkaBuilder, SAMPLE, BatchCompression.ZSTD)
    assert refusal(batch, api_version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@EXAMPLES
@pytest.mark.parametrize("how", list(BatchCompression))
def test_bytes_of_a_batch_that_are_changed_never_raise_anything_else(
    how: BatchCompression, examples: int
) -> None:
    """With a checksum that fits, so that the parser is reached."""
    dice = Random(f"{how.name} {of_run()}")
    whole = theirs(AiokafkaBuilder, SAMPLE[:3], how)
    for _ in range(10 * examples):
        batch = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            batch[dice.randrange(ATTRIBUTES_AT, len(batch))] = dice.randrange(256)
        batch = batch[: dice.randint(ATTRIBUTES_AT + 2, len(batch))]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        with contextlib.suppress(BadBatch):
            list(read_produced(changed(bytes(batch), 0, ">q", 0), api_version=7, max_bytes=MAX_BYTES).records)


def test_what_cannot_be_a_batch_is_not_built() -> None:
    with pytest.raises(UnencodableValue, match="at least one record"):
        build_batch([])
    with pytest.raises(UnencodableValue, match="more than 131072"):
        build_batch([SAMPLE[0]] * (MAX_RECORDS + 1))
    with pytest.raises(UnencodableValue, match="64 bits"):
        build_batch([Record(None, None, (), 2**63)])
    with pytest.raises(UnencodableValue, match="no record batch"):
        read_header(GOOD[:60])
