"""What the wire of the Kafka endpoint costs in CPU time on one core.

``python -m tests.loghub_service.kafka.bench_wire`` prints, for logs of about 200 bytes in a number of fields,
how many logs a second become record batches from the bytes of their log group, nothing cached, in Python and
by the native part if there is one; how many produced records a second are read and become a log group; and
the time to encode a Fetch answer. The shortest of many runs counts, since other programs can only lengthen
one.
"""

import time
from collections.abc import Callable

from loghub.wire import native
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.records.records import batch_in_python, batch_of, logs_of
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.frames import RequestHeader, response_buffers
from loghub_service.kafka.wire.logs import FetchableTopicResponse, FetchResponse, PartitionData
from loghub_service.kafka.wire.record_batch import Record, read_produced
from tests.loghub_service.kafka.client_batches import build_batch
from tests.loghub_service.kafka.client_frames import encode_response

RUNS, LOGS, CONTENT_BYTES = 100, 200, 200
FIELDS = (1, 2, 4, 6, 10)
PARTITIONS, PARTITION_BYTES = 16, 100_000


def seconds(work: Callable[[], object]) -> float:
    """The least CPU time of one call."""
    work()
    best = float("inf")
    for _ in range(RUNS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def log_group(fields: int) -> bytes:
    """Logs whose values differ, a few in each millisecond."""
    size = CONTENT_BYTES // fields
    logs = (
        Log(
            time=1_700_000_000 + number // 100,
            time_ns=number * 317_003 % 1_000_000_000,
            contents=tuple((f"field{n}", (f"{number}/{n} " * CONTENT_BYTES)[:size]) for n in range(fields)),
        )
        for number in range(LOGS)
    )
    return encode(LogGroup(logs=tuple(logs)))


def main() -> None:
    print(f"logs of {CONTENT_BYTES} bytes in groups of {LOGS}, to batches:")
    ways = {"Python": batch_in_python} | ({"native": batch_of} if native.is_installed else {})
    for fields in FIELDS:
        group = log_group(fields)
        for name, way in ways.items():
            took = seconds(lambda group=group, way=way: way(group, raw=False))  # type: ignore[misc]
            print(
                f"  {fields:3} fields, {name} {LOGS / took / 1e6:8.2f} million logs/s"
                f" {len(group) / took / 1e6:8.0f} MB/s"
            )
    records = [Record(b"key", b"x" * CONTENT_BYTES, (), 1_700_000_000_000 + n) for n in range(LOGS)]
    batch = build_batch(records)
    plain = RecordForm.PLAIN
    for name, work in (
        ("build a batch", lambda: build_batch(records)),
        (
            "read a produced batch",
            lambda: list(read_produced(batch, api_version=7, max_bytes=1 << 24).records),
        ),
        (
            "records to a log group",
            lambda: encode(LogGroup(logs=tuple(logs_of(records, plain, now_ms=0)))),
        ),
    ):
        print(f"{name:24} {LOGS / seconds(work) / 1e6:6.2f} million records/s")
    header = RequestHeader(api_key=ApiKey.FETCH, api_version=11, correlation_id=1)
    partitions = tuple(
        PartitionData(partition_index=n, high_watermark=1, records=bytes(PARTITION_BYTES))
        for n in range(PARTITIONS)
    )
    answer = FetchResponse(responses=(FetchableTopicResponse(topic="logs", partitions=partitions),))
    print(f"Fetch answer, {PARTITIONS} x {PARTITION_BYTES} bytes:")
    print(f"  as one frame {seconds(lambda: encode_response(header, answer)) * 1e6:8.0f} us")
    print(f"  as buffers   {seconds(lambda: response_buffers(header, answer)) * 1e6:8.0f} us")


if __name__ == "__main__":
    main()
