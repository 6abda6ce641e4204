"""Random appends, looks of retention and starts: what has not expired is read, in order and completely.

Retention looks again and again, drops a few segments at a time, and some of their files stay for a while;
receive times are in the future at times; a start follows a power cut, or not.
"""

import random
from collections.abc import Iterable

import pytest

from loghub_service.storage.log_inspection import LoadedSegments, inspect_log
from loghub_service.storage.segment import NewGroup, Room
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import SimDisk

FOLDER = "/data/logs/1/0"
FIRST = 1000
BIRTH = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50, salt=7)


class Story:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.dice, self.disk = random.Random(seed), SimDisk()
        self.now_us = 1000
        self.written: list[bytes] = []
        self.left_over: list[str] = []
        self.log = self.empty_log()

    def empty_log(self) -> ShardLog:
        files = LoadedSegments(self.disk, maximum=self.dice.choice([1, 2, 8]))
        size = self.dice.choice([512, 2048])
        return ShardLog(self.disk, folder=FOLDER, birth=BIRTH, room=Room(segment_bytes=size), files=files)

    def append(self) -> None:
        groups = [b"%d" % n * self.dice.choice([1, 100, 600, 3000]) for n in range(self.dice.randint(1, 6))]
        ahead_us = self.dice.choice([0, 0, 0, 0, 10**8])
        self.log.append([NewGroup(group=one, logs=1, received_us=self.now_us + ahead_us) for one in groups])
        self.log.sync()
        self.written += groups

    def expire(self) -> None:
        before_us = self.now_us - self.dice.choice([0, 5, 5000])
        self.left_over += self.log.expire(
            before_us, now_us=self.now_us, maximum=self.dice.choice([1, 2, 100])
        )
        self.dice.shuffle(self.left_over)
        gone = self.dice.randint(0, len(self.left_over))
        self.remove(self.left_over[:gone])
        self.left_over = self.left_over[gone:]

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.disk.remove(path)
        self.disk.sync_dir(FOLDER)

    def restart(self) -> None:
        oldest = self.log.extent.oldest_cursor
        if self.dice.random() < 0.5:
            self.disk.lose_power(self.dice)
        found = inspect_log(self.disk, FOLDER, oldest_cursor=oldest)
        assert found.problems == []
        self.log = self.empty_log()
        self.log.restore(found)
        self.remove(found.expired)
        self.left_over = []

    def check(self) -> None:
        extent = self.log.extent
        assert extent.end_cursor == FIRST + len(self.written)
        read = self.log.read(cursor=0, end_cursor=1 << 62, max_groups=10_000, max_bytes=1 << 40)
        assert [one.cursor for one in read.entries] == list(range(extent.oldest_cursor, extent.end_cursor))
        assert [one.group for one in read.entries] == self.written[extent.oldest_cursor - FIRST :]
        left = self.log.place(FIRST, now_us=self.now_us)
        assert left.groups_left == left.logs_left == len(read.entries)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 5000), marks=pytest.mark.deep)])
def test_what_has_not_expired_is_there(seeds: range) -> None:
    for seed in seeds:
        story = Story(seed)
        for _ in range(40):
            story.now_us += story.dice.choice([1, 10, 1000])
            story.dice.choice([story.append, story.append, story.expire, story.expire, story.restart])()
            story.check()
