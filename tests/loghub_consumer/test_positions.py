"""Where a shard continues: seek, pause, and positions that do not exist."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest

from loghub.client.port import PackedPull
from loghub.contract.worker import OnFailure
from loghub.wire.compression import Packed
from loghub.wire.cursor import decode, encode
from loghub.wire.errors import LogHubError, MalformedCursor
from loghub_consumer import Consumer, LogBatch, NotAssignedError, Tracker
from tests.loghub_consumer.support import (
    Recorder,
    RecordingListener,
    Seen,
    Site,
    released,
    running,
    save,
    wait_for,
)


@pytest.mark.parametrize(("to", "skipped"), [("begin", 0), ("end", 6), (1, 0), ("cursor", 4)])
def test_the_listener_may_seek_before_the_first_batch(site: Site, to: str | int, skipped: int) -> None:
    site.prepare()
    ids = site.put(3)
    target = encode(decode(site.begin()) + 2) if to == "cursor" else to
    seen = Seen()
    consumer: list[Consumer] = []
    listener = RecordingListener(
        lambda shards: [consumer[0].seek(shard, target) for shard in shards] and None
    )
    consumer.append(Consumer(site.settings(), seen.factory, listener))
    with running(consumer[0]):
        wait_for(lambda: "initialize 0" in seen.calls, "the shard")
        ids += site.put()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert seen.ids() == ids[skipped:]


def test_a_seek_while_a_batch_is_processed_takes_effect_after_it(site: Site) -> None:
    site.prepare()
    ids = site.put(3)
    runs, may_end = threading.Event(), threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        runs.set()
        may_end.wait(60)

    seen = Seen(process)
    consumer = Consumer(site.settings(max_bytes=1), seen.factory)
    with running(consumer), released(may_end):
        assert runs.wait(60)
        consumer.seek(0, "begin")
        may_end.set()
        wait_for(lambda: consumer.position(0) == site.ends()[0], "the end")
        with pytest.raises(MalformedCursor):
            consumer.seek(0, "yesterday")
        with pytest.raises(NotAssignedError):
            consumer.seek(7, "begin")
    assert seen.ids() == ids[:2] + ids


@pytest.mark.long
def test_a_paused_shard_gets_nothing_until_it_is_resumed(site: Site) -> None:
    site.prepare(shards=2)
    seen = Seen()
    consumer = Consumer(site.settings(), seen.factory)
    with running(consumer):
        wait_for(lambda: consumer.assignment() == (0, 1), "the shards")
        consumer.pause([0])
        assert consumer.paused() == (0,)
        paused, others = site.put(2), site.put(2, shard=1)
        wait_for(lambda: site.saved()[1] == site.ends()[1], "the other shard")
        others += site.put(2, shard=1)
        wait_for(lambda: seen.ids(1) == others, "more of the other shard")
        assert seen.ids(0) == []
        consumer.resume([0])
        assert consumer.paused() == ()
        wait_for(lambda: seen.ids(0) == paused, "the resumed shard")


@pytest.mark.long
def test_shards_wait_while_one_with_a_higher_priority_has_a_backlog(site: Site) -> None:
    site.prepare(shards=3)
    ids = {shard: site.put(4, shard=shard) for shard in range(3)}
    seen = Seen()
    consumer = Consumer(site.settings(max_bytes=1), seen.factory)
    consumer.pause()
    with running(consumer):
        wait_for(lambda: consumer.paused() == (0, 1, 2), "the shards")
        wait_for(lambda: len(seen.calls) == 3, "their processors")
        for shard in range(3):
            consumer.prioritize([shard], shard)
        consumer.resume()
        wait_for(lambda: site.saved() == site.ends(), "all to be saved")
        more = site.put(1)
        wait_for(lambda: seen.ids(0) == ids[0] + more, "a shard with a low priority at the end")
    assert [shard for shard, _ in seen.batches] == [2] * 4 + [1] * 4 + [0] * 5


def test_log_groups_that_no_longer_exist_are_skipped(site: Site) -> None:
    """The service clamps a cursor before the oldest log group, as it does once those before it expired."""
    site.prepare()
    ids = site.put(2)
    seen = Seen()
    consumer = Consumer(site.settings(), seen.factory)
    with running(consumer):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        consumer.seek(0, encode(decode(site.begin()) - 1000))
        wait_for(lambda: seen.ids() == ids + ids, "the oldest log group")
        wait_for(lambda: consumer.position(0) == site.ends()[0], "the position")


def test_an_expired_cursor_that_the_log_service_calls_invalid_is_skipped_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the real SLS may (docs/sls-protocol.md 7.8); the service of the tests does not."""
    site.prepare()
    ids = site.put(2)
    seen = Seen()
    listener = RecordingListener(lambda _: consumer.seek(0, encode(begin - 9)))
    consumer = Consumer(site.settings(), seen.factory, listener)
    pull_packed, begin = consumer._client.pull_packed, decode(site.begin())

    def strict(logstore: str, shard: int, *, cursor: str, count: int, query: str | None) -> object:
        if decode(cursor) < begin:
            raise LogHubError("InvalidCursor", 400, "it has expired")
        return pull_packed(logstore, shard, cursor=cursor, count=count, query=query)

    monkeypatch.setattr(consumer._client, "pull_packed", strict)
    with running(consumer):
        wait_for(lambda: seen.ids() == ids, "the oldest log group")


@pytest.mark.long
def test_a_position_beyond_the_end_is_reported_and_harms_no_other_shard(site: Site) -> None:
    site.prepare(shards=2)
    seen = Seen(save)
    consumer = Consumer(site.settings(), seen.factory)
    with running(consumer):
        wait_for(lambda: consumer.assignment() == (0, 1), "the shards")
        consumer.seek(0, encode(decode(site.ends()[0]) + 5))
        wait_for(lambda: bool(consumer.errors()), "the error")
        (error,) = consumer.errors()
        assert (error.shard, error.reason) == (0, "PositionBeyondEnd")
        assert "5 log groups beyond" in error.message
        others = site.put(1, shard=1)
        wait_for(lambda: seen.ids(1) == others, "the other shard")
        ids = site.put(1)
        consumer.seek(0, "begin")
        wait_for(lambda: seen.ids(0) == ids, "the shard after the seek")
        wait_for(lambda: consumer.errors() == (), "the error to be gone")


@pytest.mark.long
def test_answers_that_are_damaged_are_pulled_again_and_end_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cannot be decompressed, one cannot be decoded, one has fewer log groups than it says, one ends
    before its log groups do."""
    site.prepare()
    ids = site.put(2)
    for limits in ({}, {"max_logs": 100}, {"max_bytes": 1}, {"acknowledge": "log"}):
        seen = Seen(lambda logs, tracker: tracker.ack())
        consumer = Consumer(site.settings(**limits), seen.factory)
        pull_packed, begin = consumer._client.pull_packed, site.begin()
        damage: list[Callable[..., PackedPull]] = [
            lambda pulled: replace(pulled, body=replace(pulled.body, content=b"not LZ4")),
            lambda pulled: replace(pulled, body=Packed.plain(b"not protobuf")),
            lambda pulled: replace(pulled, body=Packed.plain(b"")),
            lambda pulled, begin=begin: replace(pulled, next_cursor=begin),
        ]

        def damaged(
            *arguments: object, pull_packed: Any = pull_packed, damage: Any = damage, **named: object
        ) -> PackedPull:
            pulled: PackedPull = pull_packed(*arguments, **named)
            return damage.pop()(pulled) if damage and pulled.count else pulled

        monkeypatch.setattr(consumer._client, "pull_packed", damaged)
        with running(consumer):
            wait_for(lambda seen=seen: seen.ids() == ids, "the sound answer")
        assert damage == []


def test_a_damaged_answer_is_pulled_again_also_if_the_processor_fails_before_it_looks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure policy would otherwise have to divide what cannot be decompressed."""
    site.prepare()
    ids = site.put(4)
    seen, calls = Seen(save), 0

    class FailsFirst(Recorder):
        def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise RuntimeError("not now")
            return super().process(logs, tracker)

    consumer = Consumer(
        site.settings(on_failure=OnFailure(policy="Skip", max_attempts=1)), lambda: FailsFirst(seen)
    )
    pull_packed, is_damaged = consumer._client.pull_packed, False

    def damaged(*arguments: Any, **named: Any) -> PackedPull:
        nonlocal is_damaged
        pulled: PackedPull = pull_packed(*arguments, **named)
        if is_damaged or not pulled.count:
            return pulled
        is_damaged = True
        return replace(pulled, body=replace(pulled.body, content=b"not LZ4"))

    monkeypatch.setattr(consumer._client, "pull_packed", damaged)
    with running(consumer):
        wait_for(lambda: seen.ids() == ids, "the sound answer")
    assert calls > 1


@pytest.mark.parametrize("by", ["split", "merge"])
@pytest.mark.parametrize("start", ["end", 4_000_000_000])
def test_shards_that_continue_a_read_one_begin_at_their_first_log(
    site: Site, by: str, start: Literal["end"] | int
) -> None:
    """Whatever the start position is, which is meant for the first start of the group."""
    site.prepare(shards=1 if by == "split" else 2)
    site.put(2)
    settings = site.settings(start_position=start)
    with running(Consumer(settings, Seen().factory)):
        wait_for(lambda: site.saved() == site.ends(), "the shards to be opened at the end")
    if by == "split":
        site.client.split_shard(site.logstore, 0)
    else:
        site.client.merge_shards(site.logstore, 0)
    new = [one.shard for one in site.client.list_shards(site.logstore) if not one.read_only]
    ids = [name for shard in new for name in site.put(3, shard=shard)]
    seen = Seen()
    with running(Consumer(settings, seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert sorted(seen.ids()) == sorted(ids)


@pytest.mark.long
def test_shards_of_which_nothing_was_read_begin_at_the_start_position(site: Site) -> None:
    site.prepare()
    site.put(1)
    site.client.split_shard(site.logstore, 0)
    skipped = [*site.put(2, shard=1), *site.put(2, shard=2)]
    seen = Seen()
    with running(Consumer(site.settings(start_position="end"), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the shards to be opened at the end")
        ids = site.put(1, shard=2)
        wait_for(lambda: seen.ids() == ids, "what is new")
    assert not set(seen.ids()) & set(skipped)
