"""What the offsets of a shard cost: a Fetch asks for those of all its partitions, most of them idle."""

import asyncio
import random
from collections.abc import Callable

import pytest

from loghub_service.kafka.broker.store import Bounds, offset_of
from loghub_service.kafka.shard_bounds import shard_bounds
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage.opened_log import open_log

BIRTH = SegmentHeader(first_cursor=1000, logs_before=0, received_us=50)


def opened(disk: SimDisk) -> ShardLog:
    return open_log(disk, folder="/logs/1/0", birth=BIRTH, segment_bytes=1024)[0]


def append(log: ShardLog, count: int) -> ShardLog:
    for _ in range(count):
        log.append([NewGroup(group=b"\n" + bytes(200), logs=3, received_us=100)])
    log.sync()
    return log


def restarted(disk: SimDisk) -> ShardLog:
    append(opened(disk), 10)
    return opened(disk)


def emptied(disk: SimDisk) -> ShardLog:
    log = append(opened(disk), 10)
    log.expire(1000, now_us=2000, maximum=100)
    return log


def machine_restarted(disk: SimDisk) -> ShardLog:
    append(opened(disk), 10)
    disk.lose_power(random.Random(1))
    return opened(disk)


LOGS: list[Callable[[SimDisk], ShardLog]] = [opened, restarted, emptied, machine_restarted]


@pytest.mark.parametrize("prepare", LOGS)
def test_the_bounds_of_a_log_are_read_once_until_it_is_written(
    prepare: Callable[[SimDisk], ShardLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimDisk()
    log = prepare(disk)

    async def bounds() -> Bounds:
        return await shard_bounds(log)

    first = asyncio.run(bounds())
    read = disk.bytes_read
    monkeypatch.setattr(asyncio, "to_thread", None)  # a thread costs as much as the read
    for _ in range(3):
        assert asyncio.run(bounds()) == first
    append(log, 1)
    end = log.extent.end_cursor - log.first_cursor
    assert asyncio.run(bounds()).end == offset_of(end - 1, 3)
    assert disk.bytes_read == read
