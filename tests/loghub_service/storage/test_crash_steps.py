"""The power goes at each single call of the disk: while groups are written, while segments are rolled, sealed
and expired, and while a start recovers from the cut before.
"""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from loghub_service.errors import WriteFailed
from loghub_service.storage.log_inspection import LoadedSegments, inspect_log
from loghub_service.storage.segment import NewGroup, Room
from loghub_service.storage.segment_format import SegmentHeader
from loghub_service.storage.shardlog import ShardLog
from tests.loghub_service.simdisk import PowerCut, SimDisk
from tests.loghub_service.storage import old_format

FOLDER = "/data/logs/1/0"
FIRST = 1000
BIRTH = SegmentHeader(first_cursor=FIRST, logs_before=0, received_us=50)
SEGMENT_BYTES = 1024
SIZES = ([60], [300, 300], [900, 40], [10], [1500], [200, 200, 200], [50])
RECOVERY_CUTS = 2  # that follow each other


class Story:
    """A log on one disk, what was acknowledged, and what was attempted."""

    def __init__(self, disk: SimDisk, dice: random.Random, known: list[bytes]) -> None:
        self.disk, self.dice = disk, dice
        self.acked = list(known)
        self.tried = list(known)
        self.first_bytes = dice.choice((200, SEGMENT_BYTES))  # in the former case it grows
        self.oldest = FIRST  # as persisted: not before the files may go

    def open(self) -> ShardLog:
        found = inspect_log(self.disk, FOLDER, oldest_cursor=self.oldest)
        assert [str(problem) for problem in found.problems] == []
        files = LoadedSegments(self.disk)
        log = ShardLog(
            self.disk,
            folder=FOLDER,
            birth=BIRTH,
            room=Room(segment_bytes=SEGMENT_BYTES, first_bytes=self.first_bytes),
            files=files,
        )
        log.restore(found)
        for path in found.expired:
            self.disk.remove(path)
        return log

    def append(self, log: ShardLog, sizes: list[int]) -> None:
        groups = [b"\n" + self.dice.randbytes(size - 1) for size in sizes]
        self.tried += groups
        log.append([NewGroup(group=group, logs=1, received_us=len(self.tried)) for group in groups])
        log.sync()
        self.acked += groups

    def expire(self, log: ShardLog) -> None:
        gone = log.expire(len(self.acked) // 2, now_us=1 << 40, maximum=2)
        self.oldest = log.extent.oldest_cursor
        for path in gone:
            self.disk.remove(path)
        self.disk.sync_dir(FOLDER)

    def check(self, log: ShardLog) -> None:
        """All that was acknowledged is there, then some of what was attempted, and nothing else."""
        extent = log.extent
        read = log.read(cursor=0, end_cursor=1 << 62, max_groups=1000, max_bytes=1 << 30)
        kept = extent.oldest_cursor - FIRST
        stored = [entry.group for entry in read.entries]
        assert stored == self.tried[kept : kept + len(stored)]
        assert kept + len(stored) >= len(self.acked)
        assert extent.end_cursor == FIRST + kept + len(stored)
        self.acked = self.tried = self.tried[: kept + len(stored)]
        self.tried = list(self.acked)


def write(story: Story) -> None:
    """Opens the log, and fills segments; each is rolled and sealed, and the older ones expire."""
    log = story.open()
    story.check(log)
    for number, sizes in enumerate(SIZES):
        story.append(log, sizes)
        if number % 3 == 2:
            story.expire(log)


def stories(action: Callable[[Story], None], begin: Callable[[], Story]) -> Iterator[Story]:
    """The story after a cut at each call of the action; ends when the action ends before the cut."""
    for steps in range(10_000):
        story = begin()
        story.disk.steps_left = steps
        try:
            action(story)
        except PowerCut:
            yield story
        else:
            return
    raise AssertionError("the action never ends")


def recovered(story: Story, cuts: int) -> None:
    """Lose power, then start; the first ``cuts`` starts are cut at a call, too."""
    for _ in range(cuts):
        story.disk.lose_power(story.dice)
        story.disk.steps_left = story.dice.randrange(12)
        try:
            story.open()
        except PowerCut:
            continue
        break
    story.disk.lose_power(story.dice)
    log = story.open()
    story.check(log)
    story.append(log, [100])
    story.check(log)


def begin_empty(seed: int) -> Story:
    return Story(SimDisk(), random.Random(seed), [])


def begin_old(seed: int) -> Story:
    """A log of format 1, as an earlier release left it."""
    dice, disk = random.Random(seed), SimDisk()
    groups = [b"\n" + dice.randbytes(dice.randrange(199)) for _ in range(11)]
    old_format.write_log(disk, FOLDER, groups, first_cursor=FIRST, per_segment=4, size=SEGMENT_BYTES)
    return Story(disk, dice, groups)


@pytest.mark.parametrize("begin", [begin_empty, begin_old])
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_at_any_call_loses_nothing_acknowledged(begin: Callable[[int], Story], seed: int) -> None:
    cuts = 0
    for story in stories(write, lambda: begin(seed)):
        recovered(story, cuts % (RECOVERY_CUTS + 1))
        cuts += 1
    assert cuts > 50


@pytest.mark.parametrize("begin", [begin_empty, begin_old])
def test_a_kill_at_any_call_loses_nothing_acknowledged(begin: Callable[[int], Story]) -> None:
    """A kill leaves the page cache: all that was written is there, and nothing of it needs to be durable."""
    for story in stories(write, lambda: begin(7)):
        story.disk.steps_left = None
        log = story.open()
        story.check(log)
        story.disk.lose_power(story.dice)  # what was read after the kill survives a later power cut
        again = story.open()
        story.check(again)
        assert again.extent == log.extent


def survived(story: Story, errors: Iterator[int | None]) -> ShardLog:
    """The log after a start, and before it some that fail: on the same machine, with its cache."""
    for error_in in errors:
        story.disk.error_in = error_in
        try:
            log = story.open()
        except (WriteFailed, OSError):
            continue
        story.disk.error_in = None  # later than all calls of a start
        return log
    raise AssertionError("the last start ends")


@pytest.mark.parametrize("begin", [begin_empty, begin_old])
@pytest.mark.parametrize("seed", range(6))
def test_an_error_of_the_disk_at_any_call_loses_nothing_that_was_readable_or_acknowledged(
    begin: Callable[[int], Story], seed: int
) -> None:
    """The process ends, and the next one finds what the kernel has left in its cache. It serves that and goes
    on, until the machine restarts. Then all that was ever readable must still be there."""
    for step in itertools.count():
        story = begin(seed * 1000 + step)
        story.disk.dice, story.disk.error_in = story.dice, step
        try:
            write(story)
        except (WriteFailed, OSError):
            pass
        else:
            if story.disk.error_in is not None:  # it never came, so each call had its turn
                assert step > 50
                break
            assert begin is begin_old  # whose index can be written later
        log = survived(story, iter([story.dice.randrange(12), None] if step % 3 == 0 else [None]))
        story.check(log)
        for _ in range(3):
            story.append(log, [story.dice.randrange(1, 700)])
        story.check(log)
        if step % 2:
            story.check(story.open())  # killed
        story.disk.lose_power(story.dice)
        log = story.open()
        story.check(log)
        story.append(log, [100])
        story.check(log)


def test_the_test_can_fail() -> None:
    """Without the sync that seals a segment, a power cut loses what was acknowledged."""

    class NoSync(SimDisk):
        def sync_dir(self, path: str) -> None:
            self.step("sync_dir")

    def run() -> None:
        for story in stories(write, lambda: Story(NoSync(), random.Random(1), [])):
            recovered(story, 0)

    with pytest.raises(AssertionError):
        run()
