"""Where a processor begins that replaces one of which the process has ended."""

from dataclasses import replace

import msgspec
import pytest

from loghub.clock import SystemClock
from loghub.wire.cursor import decode, encode
from loghub_consumer import held_shard as hs
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.membership.membership import MemberShard
from loghub_consumer.shard_table import ShardTable
from loghub_consumer.shared_buffers import SharedBuffers
from loghub_consumer.tracker import Acknowledgement, ShardTracker
from tests.loghub_consumer.test_shard_table import SETTINGS

BEGAN = 50


class Noted:
    """Checkpoints that are kept here."""

    def __init__(self, *, can_save: bool = True) -> None:
        self.can_save = can_save

    def note(self, shard: int, *, epoch: int, position: int) -> None:
        pass

    def send(self, shard: int, *, epoch: int) -> None:
        pass

    def require_place(self) -> None:
        pass


@pytest.mark.parametrize(
    ("steps", "restart"),
    [
        ([("processed", 80)], BEGAN),
        ([("saved", 60), ("processed", 80)], 60),
        ([("saved", 80), ("processed", 80)], 80),
        ([("saved", 60), ("sought", 200), ("processed", 210)], 200),
        ([("sought", 200), ("saved", 220), ("processed", 260)], 220),
        ([("saved", 60), ("sought", 10), ("processed", 30)], 10),
    ],
)
def test_it_begins_where_the_last_one_has_saved_or_was_sought(
    steps: list[tuple[str, int]], restart: int
) -> None:
    assert position_after(steps) == restart


def test_by_log_or_where_nothing_can_be_saved_it_goes_on() -> None:
    """By log, what is not acknowledged comes again by itself."""
    assert position_after([("saved", 60), ("processed", 80)], by_log=True) == 80
    assert position_after([("processed", 80)], can_save=False) == 80


def position_after(steps: list[tuple[str, int]], *, by_log: bool = False, can_save: bool = True) -> int:
    rules = replace(SETTINGS, acknowledge="log" if by_log else "batch").redelivery
    table = ShardTable(SETTINGS.limits, rules, SystemClock(), SharedBuffers(1 << 20), random=lambda: 0.5)
    entry = table.add(0, epoch=1, position=BEGAN)
    held = MemberShard(shard=0, epoch=1, position=BEGAN)
    tracker = ShardTracker(
        Noted(can_save=can_save),
        Acknowledgement(entry, rules),
        None,
        entry,
        held=held,
        seek=lambda to: entry.seek(decode(str(to))),
    )
    for what, cursor in steps:
        if what == "saved":
            tracker.save(cursor=encode(cursor))
        elif what == "sought":
            tracker.seek(encode(cursor))
        else:
            entry.apply(lambda state, _: msgspec.structs.replace(state, position=cursor))  # noqa: B023
    assert tracker.restart_before(entry.state.position) <= entry.state.position
    tracker.interrupted(Failure(cause=Cause.ENDED, reason="ProcessEnded"))
    assert entry.state.phase is hs.HeldShardPhase.OPENING
    return entry.state.position
