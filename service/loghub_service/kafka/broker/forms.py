"""Record batches become log groups, and log groups record batches, in the form of their topic."""

from dataclasses import dataclass

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.wire.loggroup import append_log
from loghub_service.kafka.broker.answer import BrokerLimits
from loghub_service.kafka.producers import Sequence
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.records.records import batch_of, logs_of
from loghub_service.kafka.wire.codec import Buffer
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode
from loghub_service.kafka.wire.record_batch import MAX_RECORDS, read_produced

assert MAX_RECORDS <= MAX_GROUP_LOGS  # so that every record of a batch has an offset


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A produced batch as a log group. ``sequence`` is None if its producer is not idempotent."""

    group: bytes
    logs: int
    producer_id: int
    sequence: Sequence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSource:
    """How a batch was sent: the version of Produce, the form of its topic, and the time now."""

    api_version: int
    form: RecordForm
    now_ms: int


def decode_batch(source: BatchSource, records: Buffer | None, *, limits: BrokerLimits) -> NewBatch:
    """The batch as a log group. Raises BadBatch, also if the log group would be too large."""
    produced = read_produced(records, api_version=source.api_version, max_bytes=limits.group_bytes)
    group = bytearray()
    for log in logs_of(produced.records, source.form, now_ms=source.now_ms):
        append_log(group, log)
        if len(group) > limits.group_bytes:
            raise BadBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch becomes a log group of more than {limits.group_bytes} bytes",
            )
    header = produced.header
    count = header.record_count
    sequence = None
    if header.producer_id >= 0:
        sequence = Sequence(epoch=header.producer_epoch, first=header.base_sequence, count=count)
    return NewBatch(group=bytes(group), logs=count, producer_id=header.producer_id, sequence=sequence)


def encode_group(form: RecordForm, group: bytes, base_offset: int) -> bytes:
    """The record batch of a stored log group. Raises MalformedLogGroup, which only damage can cause."""
    return batch_of(group, raw=form is RecordForm.RAW, base_offset=base_offset)
