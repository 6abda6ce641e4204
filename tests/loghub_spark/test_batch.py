"""The batch reader against a real service, without a JVM: the bounds of what is read."""

import pickle
from typing import Any

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode, encode
from loghub_spark.columns import VIEW
from loghub_spark.options import DataLossError, LogstoreError, OptionError, Use
from loghub_spark.reader import LogHubReader, RangePartition, plan_of
from tests.loghub_spark.support import LOGSTORE, LOWER, UPPER, Writes, id_of, options_of
from tests.support import ServiceProcess, wait_until


def reader(service: ServiceProcess, **more: Any) -> LogHubReader:
    return LogHubReader(plan_of(options_of(service, **more), VIEW, Use.BATCH_READ))


def read(planned: LogHubReader) -> list[str]:
    """Sorted ids; planned once and read on a copy, as by Spark."""
    copy = pickle.loads(pickle.dumps(planned))
    parts = [pickle.loads(pickle.dumps(one)) for one in planned.partitions()]
    rows = [row for part in parts for batch in copy.read(part) for row in batch.to_pylist()]
    return sorted((id_of(row) for row in rows), key=int)


def cursor(client: HttpLogHub, shard: int, position: Any) -> int:
    return decode(client.get_cursor(LOGSTORE, shard, position))


@pytest.mark.long
def test_cursors_bound_what_is_read(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(10, logs=1, hash_key=LOWER)
    writes.put(5, logs=1, hash_key=UPPER)
    first = cursor(client, 0, "begin")
    some = reader(
        service,
        startingOffsets=f'{{"0": {first + 3}, "1": -2}}',
        endingOffsets=f'{{"0": "{encode(first + 6)}", "1": -1}}',
    )
    assert read(some) == ["3", "4", "5", "10", "11", "12", "13", "14"]
    assert read(reader(service, startingOffsets="latest")) == []
    assert read(reader(service, shards="1")) == ["10", "11", "12", "13", "14"]
    with pytest.raises(OptionError, match=r"must name each shard that is read, which are \[0, 1\]"):
        reader(service, startingOffsets='{"0": 5}').partitions()
    with pytest.raises(LogstoreError, match=r"endingOffsets: cursor \d+ of shard 0 lies after its end"):
        reader(service, endingOffsets=f'{{"0": {first + 99}, "1": -1}}').partitions()


@pytest.mark.long
def test_times_bound_what_is_read(service: ServiceProcess, client: HttpLogHub) -> None:
    """By the receipt at the service, in whole seconds."""
    writes = Writes(client)
    old = writes.put(4, logs=1, hash_key=LOWER)
    between = client.get_cursor_time(LOGSTORE, 0, encode(cursor(client, 0, "end") - 1)) + 1
    new: list[str] = []

    def is_received_later() -> bool:
        new.extend(writes.put(1, logs=1, hash_key=LOWER))
        last = encode(cursor(client, 0, "end") - 1)
        return client.get_cursor_time(LOGSTORE, 0, last) >= between

    wait_until(is_received_later, "the next second")
    found = read(reader(service, startingTimestamp=between * 1000))
    assert found == [new[-1]]
    earlier = read(reader(service, endingTimestamp=between * 1000))
    assert earlier == [*old, *new[:-1]]
    assert read(reader(service, endingTimestamp=between * 1000 - 1)) == earlier
    assert read(reader(service, startingTimestamp="2100-01-01T00:00:00Z")) == []


def test_a_shard_is_divided_unless_its_order_is_wanted(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(30, logs=1, hash_key=LOWER)
    parts = reader(service, minPartitions=4).partitions()
    assert len(parts) == 4
    (whole,) = reader(service, minPartitions=4, inOrder=True).partitions()
    assert isinstance(whole, RangePartition)
    assert whole.part is not None
    assert whole.part.groups == 30
    assert read(reader(service, minPartitions=4)) == [str(n) for n in range(30)]


@pytest.mark.long
def test_an_endpoint_that_does_not_answer_is_named(service: ServiceProcess) -> None:
    with pytest.raises(LogstoreError, match=r"127.0.0.1:9 did not answer.*Check the option endpoint"):
        reader(service, endpoint="http://127.0.0.1:9").partitions()


def test_an_empty_logstore_has_no_rows(service: ServiceProcess, client: HttpLogHub) -> None:
    assert read(reader(service)) == []


def test_logs_that_no_longer_exist_fail_the_read(service: ServiceProcess, client: HttpLogHub) -> None:
    """A start before the oldest log is a loss; `earliest` is not."""
    writes = Writes(client)
    writes.put(2, logs=1, hash_key=LOWER)
    before = f'{{"0": {cursor(client, 0, "begin")}, "1": -1}}'
    client.delete_logstore(LOGSTORE)
    client.create_logstore(LOGSTORE, shards=2)
    left = writes.put(2, logs=1, hash_key=LOWER)
    with pytest.raises(DataLossError, match="no longer exist"):
        read(reader(service, startingOffsets=before))
    assert read(reader(service, startingOffsets=before, failOnDataLoss=False)) == left
    assert read(reader(service)) == left
