"""What a shard hands over before the end that the settings give."""

from loghub.client.port import Credentials
from loghub.clock import SystemClock
from loghub.wire.compression import Packed
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_worker.api import ConsumerSettings
from loghub_worker.consumer import shard_flow as sf
from loghub_worker.consumer.batch import PulledBody
from loghub_worker.consumer.shard_flow import PullResult
from loghub_worker.consumer.shard_slot import ShardSlot
from loghub_worker.consumer.shard_step import Step
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.consumer.shared_buffers import SharedBuffers

SETTINGS = ConsumerSettings(
    endpoint="http://loghub",
    project="demo",
    logstore="access",
    consumer_group="readers",
    consumer="c-0",
    credentials=Credentials(access_key_id="id", access_key_secret="secret"),
)
GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


def receive(table: ShardTable, *, first: int, after: int) -> ShardSlot:
    """Answer the pull that is due."""
    due = table.begin_pull()
    assert isinstance(due, tuple)
    slot, pull = due
    body = Packed.plain(wrap([GROUP] * (after - first)))
    result = PullResult(groups=after - first, bytes=body.size, after=after, is_end=False)
    pulled = PulledBody(body, shard=0, first=first, count=after - first)
    table.receive(slot, pull, result, pulled, interval_s=0.2)
    return slot


def test_log_groups_that_expired_do_not_make_room_for_others_behind_the_end() -> None:
    table = ShardTable(
        SETTINGS.limits, SETTINGS.redelivery, SystemClock(), SharedBuffers(1 << 20), random=lambda: 0.5
    )
    slot = table.add(0, epoch=1, position=50)
    table.apply(slot, lambda flow, now: sf.initialized(flow, now=now))
    table.apply(slot, lambda flow, _: sf.bounded(flow, end=120))
    receive(table, first=60, after=70)
    receive(table, first=100, after=130)
    assert table.next_step(slot) == (Step.PROCESS, 0.0)
    assert slot.kept is not None
    assert [(one.first, one.after) for one in slot.kept.batch.slices] == [(60, 70), (100, 120)]
