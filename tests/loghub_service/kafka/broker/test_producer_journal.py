"""Where a start reads the batches of producers: not more of the logs than it has to."""

import asyncio
import shutil
from pathlib import Path

import pytest

from loghub_service.api import shards
from loghub_service.kafka.producers import LaterBatches
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.producer_journal import LaterSent, ProducerJournal, read_later
from loghub_service.pulsar.sequences import LaterSequences
from tests.loghub_service.kafka.broker.broker_place import TOPIC, Place, run
from tests.loghub_service.kafka.broker.test_offsets import of_demo
from tests.loghub_service.kafka.broker.test_produce import numbered


def marks_of(place: Place) -> list[tuple[int, int]]:
    """The shard and the cursor of each durable mark."""
    database = place.engine._database
    return [(mark.shard, mark.cursor) for mark in database.producer_marks()]


def test_a_start_reads_from_where_the_last_save_was_and_nothing_of_a_shard_at_rest(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, engine = await place.client(), place.engine
        (key,) = engine.logs
        log = engine.logs[key]
        first = log.extent.end_cursor
        assert marks_of(place) == []
        await numbered(client, 0, "a")
        await numbered(client, 1, "b")
        assert marks_of(place) == [(0, first)]
        await engine.producers.save()
        assert marks_of(place) == [(0, first + 2)]
        await numbered(client, 2, "c")
        await engine.producers.save()
        assert marks_of(place) == [(0, first + 3)]
        await numbered(client, 3, "d")
        ((_, cursor),) = marks_of(place)
        later = LaterSent(LaterBatches((), 10), LaterSequences(10))
        read_later(log, key[0], cursor, later)
        _, (found,) = later.batches.result()
        assert [batch.sequence.first for batch in found.batches] == [3]
        await engine.producers.save()
        await engine.producers.save()
        assert marks_of(place) == []
        await numbered(client, 4, "e")
        assert marks_of(place) == [(0, first + 4)]

    run(scenario, tmp_path / "d")


def test_who_sends_nothing_causes_no_write(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await numbered(await place.client(), 0, "a")
        for _ in range(3):
            await place.engine.producers.save()
        commits = place.engine.commits["metadata"].latencies.count
        await place.engine.producers.save()
        assert place.engine.commits["metadata"].latencies.count == commits

    run(scenario, tmp_path / "d")


def test_many_batches_are_saved_at_once_so_that_a_start_reads_few(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client, journal = await place.client(), place.engine.producers
        saving = asyncio.create_task(journal.run(interval_s=3600))
        await numbered(client, 0, "a", producer=0)
        marks, sent = marks_of(place), 1
        while marks_of(place) == marks:
            assert sent < 10 * journal.maximum, "nothing is saved"
            await numbered(client, 0, "a", producer=sent)
            sent += 1
        assert sent >= journal.maximum
        saving.cancel()

    run(scenario, tmp_path / "d", producers=20)


def test_what_producers_have_sent_is_known_after_its_shard_is_deleted_and_the_service_killed(
    tmp_path: Path,
) -> None:
    sent: list[tuple[int, int]] = []

    async def before(place: Place) -> None:
        client = await place.client()
        sent.extend([await numbered(client, number, "a") for number in range(3)])
        split = of_demo("POST", {"action": "split"})
        await shards.change_shard(place.engine, split, ls=TOPIC, shard="0")
        await shards.delete_shard(place.engine, of_demo("DELETE"), ls=TOPIC, shard="0")
        shutil.copytree(tmp_path / "d", tmp_path / "killed")

    async def after(place: Place) -> None:
        client = await place.client()
        assert await numbered(client, 2, "a") == sent[2]
        assert (await numbered(client, 3, "a"))[0] == ErrorCode.NONE

    run(before, tmp_path / "d")
    run(after, tmp_path / "killed")


def test_where_a_log_is_damaged_producers_may_begin_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved of them is too old to go on from."""

    async def before(place: Place) -> None:
        client = await place.client()
        await numbered(client, 0, "a")
        await place.engine.producers.save()
        for sequence in range(1, 20):
            await numbered(client, sequence, "b" * 1000)
        monkeypatch.setattr(ProducerJournal, "_save", _nothing)  # as at a crash

    async def after(place: Place) -> None:
        assert (await numbered(await place.client(), 20, "c"))[0] == ErrorCode.NONE

    async def restarted(place: Place) -> None:
        assert (await numbered(await place.client(), 21, "d"))[0] == ErrorCode.NONE

    run(before, tmp_path / "d")
    monkeypatch.undo()
    sealed = sorted((tmp_path / "d").rglob("*.seg"))[1]
    content = bytearray(sealed.read_bytes())
    content[500] ^= 1
    sealed.write_bytes(content)
    run(after, tmp_path / "d")
    run(restarted, tmp_path / "d")


async def _nothing(_: ProducerJournal) -> None:
    """Instead of what a crash prevents."""
