"""What is saved of idempotent producers, and what becomes of it at the next start."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from loghub_service.kafka.producers import (
    LaterBatches,
    OutOfSequence,
    ProducerKey,
    Producers,
    SavedProducer,
    Sequence,
    StoredBatch,
)
from loghub_service.kafka.wire.errors import ErrorCode

KEY = ProducerKey(producer_id=7, topic=1, partition=0)
LAST = (1 << 31) - 1


def batch(first: int, *, epoch: int = 0, offset: int | None = None) -> StoredBatch:
    """Of one record."""
    found = first if offset is None else offset
    return StoredBatch(Sequence(epoch=epoch, first=first, count=1), found)


def run(scenario: Callable[[Producers], Awaitable[None]], maximum: int = 10) -> None:
    async def with_producers() -> None:
        await scenario(Producers(maximum))

    asyncio.run(with_producers())


def send(producers: Producers, first: int) -> "asyncio.Future[int]":
    stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    producers.sent(KEY, batch(first).sequence, stored)
    return stored


def test_only_stored_batches_are_saved_and_each_once() -> None:
    async def scenario(producers: Producers) -> None:
        first, _ = send(producers, 0), send(producers, 1)
        assert producers.changed() == ((), ())
        first.set_result(100)
        await asyncio.sleep(0)
        assert producers.changed() == ((SavedProducer(KEY, (batch(0, offset=100),)),), ())
        assert not producers.has_changed

    run(scenario)


def test_a_batch_that_fails_while_others_are_saved_is_left_out() -> None:
    async def scenario(producers: Producers) -> None:
        first, second = send(producers, 0), send(producers, 1)
        first.set_result(100)
        await asyncio.sleep(0)
        second.set_exception(OSError("full"))  # nobody knows of it yet
        saved = (SavedProducer(KEY, (batch(0, offset=100),)),)
        assert producers.changed() == (saved, ())
        await asyncio.sleep(0)
        assert producers.changed() == (saved, ())

    run(scenario)


def test_one_that_is_forgotten_before_it_was_saved_leaves_nothing_to_persist() -> None:
    async def scenario(producers: Producers) -> None:
        for number in range(1000):
            stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            producers.sent(ProducerKey(number, 1, 0), batch(0).sequence, stored)
            stored.set_result(number)
            if number == 4:
                await asyncio.sleep(0)
                assert len(producers.changed()[0]) == 5
        await asyncio.sleep(0)
        saved, forgotten = producers.changed()
        assert [one.key.producer_id for one in saved] == list(range(990, 1000))
        assert [key.producer_id for key in forgotten] == list(range(5))

    run(scenario)


def test_of_the_batches_in_the_logs_those_of_the_newest_producers_are_found() -> None:
    keys = [ProducerKey(number, 1, 0) for number in range(7)]
    later = LaterBatches([SavedProducer(key, (batch(0),)) for key in keys[:4]], maximum=2)
    for at, number in enumerate((1, 2, 3, 4, 5, 1, 6)):
        later.add(keys[number], batch(1), at)
    saved, found = later.result()
    assert saved == (SavedProducer(keys[0], (batch(0),)),)
    # The second was forgotten and has come again; of the third and the fourth only old batches are known.
    assert found == (
        SavedProducer(keys[2], ()),
        SavedProducer(keys[3], ()),
        SavedProducer(keys[1], (batch(1),)),
        SavedProducer(keys[6], (batch(1),)),
    )


@pytest.mark.parametrize("maximum", [1, 2, 3])
def test_the_newest_producers_are_those_of_all_logs_whichever_is_read_first(maximum: int) -> None:
    """The last producer of the first log was used later than those of the second."""
    keys = [ProducerKey(number, 1, 0) for number in range(6)]
    later = LaterBatches((), maximum)
    for number, at in ((0, 1), (5, 90), (1, 10), (2, 20), (3, 30), (4, 40)):
        later.add(keys[number], batch(0), at)
    assert [one.key.producer_id for one in later.result()[1]] == [*range(5 - maximum + 1, 5), 5]


@pytest.mark.parametrize("begin", [0, LAST - 11])
@pytest.mark.parametrize("first_log", [range(8, 12), range(12), range(1), range(4, 9)])
def test_the_newest_batches_of_a_producer_are_found_whichever_log_is_read_first(
    begin: int, first_log: range
) -> None:
    """After splits and merges, a shard with a lower number may have the newer batches."""
    sent = [batch((begin + number) % (LAST + 1)) for number in range(12)]
    later = LaterBatches((), maximum=9)
    for number in (*first_log, *(other for other in range(12) if other not in first_log)):
        later.add(KEY, sent[number], number)
    assert later.result() == ((), (SavedProducer(KEY, tuple(sent[-5:])),))


def test_where_a_log_is_damaged_no_producer_of_its_topic_is_known() -> None:
    damaged, other = ProducerKey(1, 1, 0), ProducerKey(1, 2, 0)
    later = LaterBatches([SavedProducer(damaged, (batch(0),)), SavedProducer(other, (batch(0),))], maximum=9)
    later.add(damaged, batch(1), 1)
    later.forget(1)
    later.add(damaged, batch(2), 2)
    assert later.result() == ((SavedProducer(other, (batch(0),)),), (SavedProducer(damaged, ()),))


async def fail(*sent: "asyncio.Future[int]") -> None:
    for stored in sent:
        stored.set_exception(OSError("full"))
        stored.exception()
    await asyncio.sleep(0)


def test_a_producer_whose_only_batch_failed_is_saved_as_forgotten() -> None:
    async def scenario(producers: Producers) -> None:
        await fail(send(producers, 0))
        assert producers.changed() == ((), (KEY,))

    run(scenario)


@pytest.mark.parametrize("first", [0, LAST])
@pytest.mark.parametrize("known", [True, False])
def test_those_behind_a_batch_that_failed_are_out_of_order_until_it_comes_again(
    first: int, known: bool
) -> None:
    """So none is stored before it, and it is not taken for a repetition."""
    failing, behind = (batch((first + number) % (LAST + 1)).sequence for number in (1, 2))

    async def scenario(producers: Producers) -> None:
        if known:
            send(producers, first).set_result(100)
        await fail(send(producers, failing.first))
        with pytest.raises(OutOfSequence) as refused:
            producers.repeated(KEY, behind)
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producers.repeated(KEY, failing) is None
        send(producers, failing.first)
        assert producers.repeated(KEY, behind) is None

    run(scenario)


@pytest.mark.parametrize("known", [True, False])
def test_a_batch_that_failed_before_one_that_was_stored_may_come_again(known: bool) -> None:
    async def scenario(producers: Producers) -> None:
        if known:
            send(producers, 0).set_result(100)
        failing, stored = send(producers, 1), send(producers, 2)
        await fail(failing)
        stored.set_result(102)
        assert producers.repeated(KEY, batch(1).sequence) is None
        again = send(producers, 1)
        assert producers.repeated(KEY, batch(1).sequence) is again
        assert producers.repeated(KEY, batch(2).sequence) is stored
        assert producers.repeated(KEY, batch(3).sequence) is None  # the next one

    run(scenario)


def test_a_batch_of_an_old_epoch_that_fails_leaves_those_of_the_new_one() -> None:
    async def scenario(producers: Producers) -> None:
        old = send(producers, 0)
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        producers.sent(KEY, batch(0, epoch=1).sequence, stored)
        await fail(old)
        assert producers.repeated(KEY, batch(0, epoch=1).sequence) is stored

    run(scenario)


def test_a_batch_that_a_crash_has_lost_before_others_may_come_again() -> None:
    """They may be in two shards, of which one was synced."""

    async def scenario(producers: Producers) -> None:
        producers.restore([SavedProducer(KEY, (batch(0),))], [SavedProducer(KEY, (batch(2),))])
        assert producers.repeated(KEY, batch(1).sequence) is None
        assert producers.repeated(KEY, batch(3).sequence) is None

    run(scenario)


def test_what_is_on_its_way_now_is_waited_for_and_nothing_later() -> None:
    async def scenario(producers: Producers) -> None:
        first = send(producers, 0)
        waiting = asyncio.ensure_future(producers.settled(60))
        await asyncio.sleep(0)
        send(producers, 1)
        first.set_result(100)
        assert await waiting
        assert not await producers.settled(0)  # the second one

    run(scenario)


@pytest.mark.parametrize("start", [0, LAST - 2])
def test_batches_of_several_shards_and_of_the_database_are_put_in_order(start: int) -> None:
    """After a split, and where sequences begin at 0 again. Some are known twice."""
    sequences = [(start + number) % (LAST + 1) for number in range(8)]

    async def scenario(producers: Producers) -> None:
        saved = [batch(first) for first in sequences[:4]]
        shard_a, shard_b = (
            [batch(first) for first in sequences[2:5]],
            [batch(first) for first in sequences[5:]],
        )
        later = [SavedProducer(KEY, tuple(shard_b)), SavedProducer(KEY, tuple(shard_a))]
        producers.restore([SavedProducer(KEY, tuple(saved))], later)
        assert producers.changed() == ((SavedProducer(KEY, tuple(map(batch, sequences[3:]))),), ())
        known = producers.repeated(KEY, batch(sequences[3]).sequence)
        assert known is not None
        assert await known == sequences[3]
        assert producers.repeated(KEY, batch((sequences[-1] + 1) % (LAST + 1)).sequence) is None
        with pytest.raises(OutOfSequence):
            producers.repeated(KEY, batch(sequences[0]).sequence)

    run(scenario)


def test_only_the_newest_epoch_is_restored() -> None:
    async def scenario(producers: Producers) -> None:
        old, new = SavedProducer(KEY, (batch(5), batch(6))), SavedProducer(KEY, (batch(0, epoch=1),))
        producers.restore([old], [new])
        assert producers.changed() == ((new,), ())

    run(scenario)


def test_the_one_unused_for_longest_is_forgotten_when_they_are_restored_too() -> None:
    async def scenario(producers: Producers) -> None:
        keys = [ProducerKey(number, 1, 0) for number in range(3)]
        producers.restore([SavedProducer(key, (batch(0),)) for key in keys], [])
        assert len(producers) == 2
        assert producers.changed() == ((), (keys[0],))

    run(scenario, maximum=2)
