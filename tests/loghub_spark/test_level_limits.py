"""With a limit, no shard is read ahead of another: a query has one watermark, and Spark drops what is behind
it. The planner runs on a log service in memory with a clock of the test's choice.

The invariant of each table row: no micro-batch has a log group that was received in a later second than one
that it leaves in another shard.
"""

import pytest

from loghub.client.port import LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.reading.shard_reader import Receipts
from loghub_spark.columns import VIEW
from loghub_spark.offsets import Offset, ranges_between
from loghub_spark.reader import LogHubStreamReader
from loghub_spark.shards import LogstoreShards
from tests.fakes.fake_log_service import MemoryServer
from tests.support import HandClock

LOGSTORE = "level"
BEGAN_S, LASTS_S = 1_700_000_000, 60
BODY = encode(LogGroup(logs=(Log(time=1, contents=()),)))


class Story:
    """A logstore whose shards get log groups at these rates, a number each so many seconds."""

    def __init__(self, rates: tuple[tuple[int, int], ...], *, splits_at_s: int | None) -> None:
        clock = HandClock(BEGAN_S)
        self.client: LogHub = MemoryServer(clock).client("proj")
        self.client.create_project()
        self.client.create_logstore(LOGSTORE, shards=len(rates))
        keys = [one.begin_key for one in self.client.list_shards(LOGSTORE)]
        self.receipts: dict[int, list[tuple[int, int]]] = {}  # cursor and second of each log group
        for second in range(LASTS_S):
            for key, (number, every_s) in zip(keys, rates, strict=True):
                for _ in range(number if second % every_s == 0 else 0):
                    self.put(key, second)
            if second == splits_at_s:
                self.client.split_shard(LOGSTORE, 0)
            clock.now += 1

    def put(self, key: str, second: int) -> None:
        (shard,) = (s for s in self.client.list_shards(LOGSTORE) if s.begin_key == key and not s.read_only)
        cursor = decode_cursor(self.client.get_cursor(LOGSTORE, shard.shard, "end"))
        self.client.put_logs(LOGSTORE, BODY, hash_key=key)
        self.receipts.setdefault(shard.shard, []).append((cursor, second))

    def reader(self, **options: object) -> LogHubStreamReader:
        key = {"accessKeyId": "id", "accessKeySecret": "secret"}
        given = {"endpoint": "http://127.0.0.1:1", "project": "proj", "logstore": LOGSTORE} | key
        more = {name: str(value) for name, value in options.items()}
        reader = LogHubStreamReader(given | {"startingOffsets": "earliest"} | more, VIEW)
        reader._shards = LogstoreShards(self.client, LOGSTORE, only=None)
        reader.__dict__["_receipts"] = Receipts(self.client, logstore=LOGSTORE)
        return reader

    def batches(self, reader: LogHubStreamReader) -> list[dict[int, list[int]]]:
        """The seconds of receipt of what each micro-batch reads of each shard."""
        found, at = [], reader.initialOffset()
        for _ in range(10_000):
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            if end == at:
                return found
            ranges = ranges_between(Offset.from_json(at), Offset.from_json(end))
            read = {part.shard: range(part.begin, part.end) for part in ranges}
            found.append(
                {
                    shard: [second for cursor, second in self.receipts.get(shard, ()) if cursor in cursors]
                    for shard, cursors in read.items()
                }
            )
            at = end
        raise AssertionError("the stream did not end")


TABLE = {
    "two shards, one of them busy": (((10, 1), (1, 1)), None, {"maxOffsetsPerTrigger": 20}),
    "bursts": (((1, 1), (100, 20), (3, 7)), None, {"maxOffsetsPerTrigger": 15}),
    "a silent shard": (((5, 1), (0, 1), (1, 50)), None, {"maxOffsetsPerTrigger": 9}),
    "more shards than log groups": (((1, 1),) * 5, None, {"maxOffsetsPerTrigger": 3}),
    "a limit in logs": (((4, 1), (1, 2)), None, {"maxLogsPerTrigger": 12}),
    "a limit in bytes": (((4, 1), (1, 2)), None, {"maxBytesPerTrigger": 100}),
    "a split": (((4, 1), (1, 2)), 20, {"maxOffsetsPerTrigger": 10}),
    "a split, in order": (((4, 1), (6, 2)), 20, {"maxOffsetsPerTrigger": 10, "inOrder": True}),
}


@pytest.mark.parametrize(("rates", "splits_at_s", "options"), TABLE.values(), ids=TABLE.keys())
def test_no_shard_is_read_ahead_of_another(
    rates: tuple[tuple[int, int], ...], splits_at_s: int | None, options: dict[str, object]
) -> None:
    story = Story(rates, splits_at_s=splits_at_s)
    batches = story.batches(story.reader(**options))
    left = {shard: [second for _, second in pairs] for shard, pairs in story.receipts.items()}
    for batch in batches:
        for shard, seconds in batch.items():
            assert left.get(shard, [])[: len(seconds)] == seconds
            left[shard] = left[shard][len(seconds) :]
        latest = max((second for seconds in batch.values() for second in seconds), default=-1)
        behind = {shard: seconds[0] for shard, seconds in left.items() if seconds and seconds[0] < latest}
        assert not behind, f"a batch has what was received in second {latest}"
    assert not any(left.values()), "everything is read"


def test_what_shards_get_at_different_rates_is_read_in_batches_of_about_the_limit() -> None:
    """With an even share, a shard that gets little would leave its part of each batch unused."""
    story = Story(((50, 1), (1, 1), (1, 1), (1, 1)), splits_at_s=None)
    batches = story.batches(story.reader(maxOffsetsPerTrigger=100))
    total = sum(len(seconds) for pairs in batches for seconds in pairs.values())
    assert total == 53 * LASTS_S
    assert len(batches) <= 1.25 * total / 100
