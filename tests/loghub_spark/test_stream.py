"""The stream reader against a real service, without a JVM: each log once, whatever happens to shards, to the
query and to the logs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode
from loghub_spark.columns import VIEW
from loghub_spark.options import DataLossError, LogstoreError, OptionError
from loghub_spark.reader import LogHubStreamReader
from tests.loghub_spark.support import COPY, LOGSTORE, LOWER, UPPER, Stream, Writes, flat, id_of, options_of
from tests.support import ServiceProcess


def stream(service: ServiceProcess, checkpoint: list[str] | None = None, **more: Any) -> Stream:
    """From the first log on, asking the service before every batch."""
    available_now = bool(more.pop("available_now", False))
    given = {"startingOffsets": "earliest", "fetchIntervalSeconds": "0.05"} | more
    return Stream(options_of(service, **given), checkpoint, available_now=available_now)


def drain(query: Stream, sent: Counter[str], seen: Counter[str] | None = None) -> list[list[str]]:
    """Batches until everything that was sent is read, and nothing twice."""
    read, batches = Counter(seen or ()), []
    for _ in range(10_000):  # the reader asks the service only every 50 ms
        if read.total() >= sent.total():
            break
        batches.append(query.batch())
        read.update(batches[-1])
    assert read == sent
    return [batch for batch in batches if batch]


@pytest.mark.long
def test_a_restarted_stream_goes_on_where_its_checkpoint_says(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(30)
    first = stream(service, maxOffsetsPerTrigger=7)
    seen = Counter(first.batch() + first.batch())
    # At most seven of each of the two shards, and fewer if the writes took longer than a second.
    assert 0 < seen.total() <= 28
    # Spark noted a batch and died before the sink had it: it runs that batch again, from the notes alone.
    assert first.plan()
    writes.put(5)
    again = stream(service, first.checkpoint)
    repeated = Counter(row["contents"][0][1] for row in again.run())
    assert repeated.total() > 0
    assert repeated == Counter(row["contents"][0][1] for row in first.run())
    seen.update(repeated)
    drain(again, writes.sent, seen)
    assert again.batch() == []


def test_a_stream_starts_at_the_end_by_default(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(5)
    query = stream(service, startingOffsets="latest")
    later = Counter(writes.put(5))
    drain(query, later)


@pytest.mark.parametrize("in_order", [False, True])
def test_each_log_is_read_once_over_splits_and_merges(
    service: ServiceProcess, client: HttpLogHub, in_order: bool
) -> None:
    writes = Writes(client)
    writes.put(10, hash_key=LOWER)
    query = stream(service, inOrder=in_order, maxOffsetsPerTrigger=4)
    batches = [query.batch()]
    for _ in range(2):
        shards = [info.shard for info in client.list_shards(LOGSTORE) if not info.read_only]
        client.split_shard(LOGSTORE, shards[0])
        writes.put(5, hash_key=LOWER)
        writes.put(5, hash_key=UPPER)
        batches.append(query.batch())
    writable = [info for info in client.list_shards(LOGSTORE) if not info.read_only]
    client.merge_shards(LOGSTORE, min(writable, key=lambda info: info.begin_key).shard)
    expected_order = writes.put(6, hash_key=LOWER)
    restarted = stream(service, query.checkpoint, inOrder=in_order, maxOffsetsPerTrigger=4)
    seen = flat(batches)
    batches += drain(restarted, writes.sent, seen)
    if in_order:  # everything of one key, over all generations of its shard
        lower = [one for one in (i for batch in batches for i in batch) if one in set(expected_order)]
        assert lower == expected_order
        _assert_parents_first(batches, first=[str(n) for n in range(20)], last=expected_order)


def _assert_parents_first(batches: list[list[str]], *, first: list[str], last: list[str]) -> None:
    number = {one: n for n, batch in enumerate(batches) for one in batch}
    assert max(number[one] for one in first) < min(number[one] for one in last)


def test_without_order_children_do_not_wait_for_their_parents(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(50, hash_key=LOWER)
    client.split_shard(LOGSTORE, 0)
    children = set(writes.put(2, hash_key=LOWER))
    assert children <= set(stream(service).batch())
    drain(stream(service, maxOffsetsPerTrigger=6), writes.sent)
    ordered = drain(stream(service, maxOffsetsPerTrigger=6, inOrder=True), writes.sent)
    assert not children & {one for batch in ordered[:-1] for one in batch}


def test_a_split_of_a_shard_that_is_read_does_not_repeat_finished_shards(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(3, hash_key=LOWER)
    query = stream(service)
    batches = [query.batch()]
    client.split_shard(LOGSTORE, 0)
    writes.put(3, hash_key=LOWER)
    batches += drain(query, writes.sent, flat(batches))
    writes.put(1, hash_key=UPPER)
    batches += drain(query, writes.sent, flat(batches))
    assert '"finished": [0]' in query.checkpoint[-1]
    restarted = stream(service, query.checkpoint)
    writes.put(1, hash_key=LOWER)
    drain(restarted, writes.sent, flat(batches))


def test_limits_are_kept(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(40, logs=3, hash_key=LOWER)
    writes.put(10, logs=3, hash_key=UPPER)
    by_group = stream(service, maxOffsetsPerTrigger=8).batches()
    assert flat(by_group) == writes.sent
    assert max(map(len, by_group)) <= 8 * 3
    assert max(map(len, by_group)) > 3, "and used, where a second has more than one log group"
    by_log = stream(service, maxLogsPerTrigger=20).batches()
    assert flat(by_log) == writes.sent
    assert max(map(len, by_log)) <= 18  # whole log groups
    (everything,) = (stream(service, maxOffsetsPerTrigger=8).batch(ReadAllAvailable()),)
    assert Counter(everything) == writes.sent


def test_a_limit_in_bytes_is_kept_by_the_sizes_of_the_next_log_groups(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(10, logs=1, size=100, hash_key=LOWER)
    writes.put(10, logs=1, size=20_000, hash_key=LOWER)
    batches = stream(service, maxBytesPerTrigger=50_000).batches()
    assert flat(batches) == writes.sent
    assert [len(batch) for batch in batches] == [12, 2, 2, 2, 2]


def test_one_log_group_is_always_read(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(3, logs=1, size=10_000)
    assert [len(b) for b in stream(service, maxBytesPerTrigger=1, maxLogsPerTrigger=1).batches()] == [1, 1, 1]


@pytest.mark.parametrize("in_order", [False, True])
def test_available_now_ends_with_what_there_was_at_its_start(
    service: ServiceProcess, client: HttpLogHub, in_order: bool
) -> None:
    writes = Writes(client)
    writes.put(20, hash_key=LOWER)
    client.split_shard(LOGSTORE, 0)
    writes.put(10, hash_key=LOWER)
    query = stream(service, available_now=True, maxOffsetsPerTrigger=4, inOrder=in_order)
    before = Counter(writes.sent)
    writes.put(7, hash_key=LOWER)
    client.split_shard(LOGSTORE, 1)
    writes.put(7, hash_key=UPPER)
    assert flat(query.batches()) == before
    rest = stream(service, query.checkpoint, available_now=True, inOrder=in_order)
    assert flat(rest.batches()) == writes.sent - before


def test_a_start_at_the_end_with_available_now_reads_nothing(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    writes = Writes(client)
    writes.put(4)
    query = stream(service, available_now=True, startingOffsets="latest")
    assert query.batches() == []
    writes.put(4)
    assert flat(stream(service, query.checkpoint, available_now=True).batches()).total() == 8


def test_a_split_while_a_query_with_available_now_starts_is_for_the_next_one(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    """Spark prepares the reader first, and requests the initial offset afterwards."""
    writes = Writes(client)
    writes.put(3, hash_key=LOWER)
    reader = LogHubStreamReader(options_of(service, startingOffsets="earliest"), VIEW)
    reader.prepareForTriggerAvailableNow()
    before = Counter(writes.sent)
    client.split_shard(LOGSTORE, 0)
    writes.put(3, hash_key=LOWER)
    checkpoint = [json.dumps(reader.initialOffset())]
    checkpoint.append(json.dumps(reader.latestOffset(json.loads(checkpoint[0]), ReadAllAvailable())))
    query = stream(service, checkpoint, available_now=True)
    assert Counter(id_of(row) for row in query.run()) == before
    assert flat(query.batches()) == writes.sent - before


def test_the_latest_offset_is_reported(service: ServiceProcess, client: HttpLogHub) -> None:
    Writes(client).put(10, hash_key=LOWER)
    query = stream(service, maxOffsetsPerTrigger=3)
    query.batch()
    ends = {s: decode(client.get_cursor(LOGSTORE, int(s), "end")) for s in ("0", "1")}
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert reported["shards"] == ends


def recreate(client: HttpLogHub) -> None:
    """The logstore with none of its logs; its cursors go on where the old ones ended, or later."""
    client.delete_logstore(LOGSTORE)
    client.create_logstore(LOGSTORE, shards=2)


def test_logs_that_no_longer_exist_end_the_stream(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(4, hash_key=LOWER)
    query = stream(service)
    recreate(client)
    writes.put(2, hash_key=LOWER)
    restarted = stream(service, query.checkpoint)
    with pytest.raises(DataLossError, match=r"shard 0.*no longer exist.*failOnDataLoss"):
        restarted.batch()


def test_logs_that_no_longer_exist_are_skipped_without_fail_on_data_loss(
    service: ServiceProcess, client: HttpLogHub, caplog: pytest.LogCaptureFixture
) -> None:
    writes = Writes(client)
    writes.put(4, hash_key=LOWER)
    query = stream(service)
    recreate(client)
    left = Counter(writes.put(2, hash_key=LOWER))
    restarted = stream(service, query.checkpoint, failOnDataLoss=False)
    drain(restarted, left)
    assert "no longer exist" in caplog.text


def test_a_checkpoint_beyond_the_end_is_a_loss_too(service: ServiceProcess, client: HttpLogHub) -> None:
    """As after the log service was restored from a backup."""
    writes = Writes(client)
    writes.put(1, hash_key=LOWER)
    end, other = (decode(client.get_cursor(LOGSTORE, shard, "end")) for shard in (0, 1))
    ahead = [f'{{"logstore": "demo/access", "shards": {{"0": {end + 50}, "1": {other}}}, "finished": []}}']
    with pytest.raises(DataLossError, match=rf"read up to cursor {end + 50}, but ends at {end}"):
        stream(service, ahead[:]).batch()
    query = stream(service, ahead[:], failOnDataLoss=False)
    assert query.batch() == []
    later = Counter(writes.put(3, hash_key=LOWER))
    drain(query, later)


def test_a_checkpoint_of_another_logstore_or_source_is_refused(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    query = stream(service)
    with pytest.raises(LogstoreError, match=r"checkpoint is of the logstore demo/access, .* in demo/copied"):
        stream(service, query.checkpoint, logstore=COPY).batch()
    with pytest.raises(LogstoreError, match="not of this data source; use another checkpointLocation"):
        stream(service, ['{"topic": {"0": 5}}']).batch()


def test_a_shard_that_is_gone_before_it_was_read_is_a_loss(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    end, other = (decode(client.get_cursor(LOGSTORE, shard, "end")) for shard in (0, 1))
    gone = [f'{{"logstore": "demo/access", "shards": {{"0": {end}, "1": {other}, "9": 5}}, "finished": []}}']
    with pytest.raises(DataLossError, match="shard 9 no longer exists"):
        stream(service, gone[:]).batch()
    query = stream(service, gone[:], failOnDataLoss=False)
    assert query.batch() == []
    assert '"9"' not in query.checkpoint[-1]
    assert query.batch() == []


def test_a_shard_that_is_gone_after_it_was_read_to_its_end_is_none(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    end, other = (decode(client.get_cursor(LOGSTORE, shard, "end")) for shard in (0, 1))
    read = f'{{"logstore": "demo/access", "shards": {{"0": {end}, "1": {other}, "9": 5}}, "finished": [9]}}'
    query = stream(service, [read])
    assert query.batch() == []
    assert '"9"' not in query.checkpoint[-1]


def test_only_the_shards_that_are_named_are_read(service: ServiceProcess, client: HttpLogHub) -> None:
    writes = Writes(client)
    writes.put(3, hash_key=LOWER)
    upper = Counter(writes.put(3, hash_key=UPPER))
    query = stream(service, shards="1")
    seen = Counter(query.batch())
    assert seen == upper
    client.split_shard(LOGSTORE, 1)
    writes.put(3, hash_key=UPPER)
    assert stream(service, query.checkpoint, shards="1").batch() == []
    with pytest.raises(OptionError, match=r"no shard 7"):
        stream(service, shards="7")


@pytest.mark.long
def test_an_idle_stream_asks_the_service_only_as_often_as_it_may(
    service: ServiceProcess, client: HttpLogHub
) -> None:
    Writes(client).put(3)
    query = stream(service, fetchIntervalSeconds=3600)
    assert len(query.batch()) == 6
    service.terminate()
    try:
        assert [query.batch() for _ in range(200)] == [[]] * 200
    finally:
        service.start()


def test_a_logstore_that_does_not_exist_is_named(service: ServiceProcess, client: HttpLogHub) -> None:
    with pytest.raises(LogstoreError, match=r"demo/nope at .*Check the option logstore"):
        stream(service, logstore="nope")


def test_a_key_in_a_folder_is_read_when_it_is_needed(
    service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    with pytest.raises(LogstoreError, match="Check the access key"):
        stream(service, credentialsDir=tmp_path)
    query = stream(service)
    assert service.credentials.access_key_secret not in repr(query.reader.__dict__)
