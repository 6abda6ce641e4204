"""Logs that wait for a file of its size, and a shard that waits since a range of it failed."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.wire.cursor import decode
from loghub_consumer.batch_plan import BatchPlan, Range, RangeRetry
from loghub_consumer.exchange_files import Positions, ShardRetries
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_consumer.reading.test_datasource import LOGSTORE, Paced, group


def test_a_range_that_failed_and_logs_that_wait_for_a_file_do_not_wait_for_each_other(tmp_path: Path) -> None:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore(LOGSTORE, shards=2)
    paced = Paced(client, tmp_path, max_log_groups=5000, roll_bytes=1000, roll_delay_s=30.0)
    positions = {0: paced.at, 1: decode(client.get_cursor(LOGSTORE, 1, "end"))}
    paced.exchange.write_positions(Positions(version=9, shards=positions))
    assert paced.reader.latestOffset(paced.offset, ReadAllAvailable()) == paced.offset
    retry = RangeRetry(begin=paced.at, log_groups=1, not_before_s=None)
    paced.exchange.write_retries(ShardRetries(shards={0: retry}))
    for shard in client.list_shards(LOGSTORE):  # that of the second one comes 20 s later
        client.put_logs(LOGSTORE, group(1), hash_key=shard.begin_key)
        assert paced.reader.latestOffset(paced.offset, ReadAllAvailable()) == paced.offset
        paced.clock.now += 20.0 * (shard.shard == 0)
    failed, other = ((Range(shard, at, at + 1),) for shard, at in positions.items())
    for waits_s, takes_s, ranges in ((0, 0, failed), (0, 0, failed), (60, 30, other)):
        retry = RangeRetry(begin=paced.at, log_groups=1, not_before_s=paced.clock.now + waits_s)
        paced.exchange.write_retries(ShardRetries(shards={0: retry}))
        since_s, before = paced.clock.now, paced.offset
        while paced.offset == before:
            paced.offset = paced.reader.latestOffset(before, ReadAllAvailable())
        assert paced.clock.now - since_s == pytest.approx(takes_s, abs=2)
        assert BatchPlan.from_json(paced.offset).ranges == ranges
