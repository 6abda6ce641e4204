"""What a shard hands over before the end that the settings give."""

from loghub.client.port import Credentials
from loghub.clock import SystemClock
from loghub.wire.compression import Packed
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer import ConsumerSettings
from loghub_consumer import held_shard as hs
from loghub_consumer.batch import PulledBody
from loghub_consumer.held_shard import PullResult, ThreadStep
from loghub_consumer.shard_table import HeldShardEntry, ShardTable
from loghub_consumer.shared_buffers import SharedBuffers

SETTINGS = ConsumerSettings(
    endpoint="http://loghub",
    project="demo",
    logstore="access",
    consumer_group="readers",
    consumer="c-0",
    credentials=Credentials(access_key_id="id", access_key_secret="secret"),
)
GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


def receive(table: ShardTable, *, first: int, after: int) -> HeldShardEntry:
    """Answer the pull that is due."""
    due = table.begin_pull()
    assert isinstance(due, tuple)
    entry, pull = due
    body = Packed.plain(wrap([GROUP] * (after - first)))
    result = PullResult(groups=after - first, bytes=body.size, after=after, is_end=False)
    pulled = PulledBody(body, shard=0, first=first, count=after - first)
    table.receive(entry, pull, result, pulled, interval_s=0.2)
    return entry


def test_log_groups_that_expired_do_not_make_room_for_others_behind_the_end() -> None:
    table = ShardTable(
        SETTINGS.limits, SETTINGS.redelivery, SystemClock(), SharedBuffers(1 << 20), random=lambda: 0.5
    )
    entry = table.add(0, epoch=1, position=50)
    entry.apply(lambda state, now: hs.initialized(state, now=now))
    entry.apply(lambda state, _: hs.bounded(state, end=120))
    receive(table, first=60, after=70)
    receive(table, first=100, after=130)
    assert table.next_step(entry) == (ThreadStep.PROCESS, 0.0)
    assert entry.kept is not None
    assert [(one.first, one.after) for one in entry.kept.batch.slices] == [(60, 70), (100, 120)]
