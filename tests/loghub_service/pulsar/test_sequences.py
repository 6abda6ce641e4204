"""A message that is sent again is known, also after a restart; one that was not stored may come again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_service.pulsar.origin import MessageChunk, PulsarOrigin
from loghub_service.pulsar.sequences import (
    LaterSequences,
    MessageNumber,
    NamedProducer,
    SavedSequence,
    Sequences,
    number_of,
)

A, B, C = (NamedProducer(1, 0, name) for name in "abc")


def on_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


async def send(sequences: Sequences, producer: NamedProducer, *numbers: MessageNumber | int) -> None:
    """Messages that are stored at once."""
    for number in numbers:
        stored = append(sequences, producer, number)
        stored.set_result(None)
        await asyncio.sleep(0)


def append(
    sequences: Sequences, producer: NamedProducer, number: MessageNumber | int
) -> "asyncio.Future[int | None]":
    """A message on its way, of a producer that goes on."""
    numbered = MessageNumber(number) if isinstance(number, int) else number
    assert sequences.repeated(producer, numbered) is None
    stored: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    sequences.sent(producer, numbered, stored, sequences.series_of(producer))
    return stored


def is_known(sequences: Sequences, producer: NamedProducer, number: MessageNumber | int) -> bool:
    """Whether it is durable already."""
    repeated = sequences.repeated(producer, MessageNumber(number) if isinstance(number, int) else number)
    return repeated is not None and repeated.done()


def test_what_was_stored_is_known_for_each_producer_and_partition() -> None:
    async def scenario() -> None:
        sequences = Sequences(10)
        await send(sequences, A, 0, 1, 7)
        assert [is_known(sequences, A, number) for number in (0, 5, 7, 8)] == [True, True, True, False]
        assert not is_known(sequences, B, 0)
        assert not is_known(sequences, A._replace(partition=1), 0)
        assert not is_known(sequences, A._replace(topic=2), 0)
        assert (sequences.last_stored(A), sequences.last_stored(B)) == (7, None)

    on_loop(scenario)


def test_what_is_on_its_way_is_waited_for() -> None:
    """From another connection, which a client has made while the answer of the first was lost."""

    async def scenario() -> None:
        sequences = Sequences(10)
        first, second = append(sequences, A, 4), append(sequences, A, 9)
        assert sequences.repeated(A, MessageNumber(4)) is first
        assert sequences.repeated(A, MessageNumber(6)) is second  # a batch with another end
        assert sequences.last_stored(A) is None
        first.set_result(None)
        await asyncio.sleep(0)
        assert is_known(sequences, A, 4)
        assert sequences.last_stored(A) == 4
        assert sequences.repeated(A, MessageNumber(9)) is second
        second.set_result(None)

    on_loop(scenario)


async def fail(*failing: "asyncio.Future[int | None]", cancelled: bool = False) -> None:
    for each in failing:
        if cancelled:
            each.cancel()
        else:
            each.set_exception(OSError())
            each.exception()
    await asyncio.sleep(0)


@pytest.mark.parametrize("cancelled", [True, False])
def test_what_was_not_stored_may_come_again_in_other_batches(cancelled: bool) -> None:
    async def scenario() -> None:
        sequences = Sequences(10)
        await send(sequences, A, 5)
        failing = [append(sequences, A, number) for number in (9, 12, 20)]
        await fail(*failing, cancelled=cancelled)
        assert [is_known(sequences, A, number) for number in (5, 6, 9, 20)] == [True, False, False, False]
        assert sequences.last_stored(A) == 5
        await send(sequences, A, 7, 15)
        assert [is_known(sequences, A, number) for number in (7, 15, 16)] == [True, True, False]

    on_loop(scenario)


def test_a_failure_is_noticed_while_the_client_sends_again() -> None:
    """Over another connection, before it is known that what came behind it is refused, too."""

    async def scenario() -> None:
        sequences = Sequences(10)
        first, second, third = (append(sequences, A, number) for number in (1, 2, 3))
        await fail(first)
        again = append(sequences, A, 1)
        await fail(second, third)
        assert sequences.repeated(A, MessageNumber(1)) is again
        assert sequences.repeated(A, MessageNumber(2)) is None
        again.set_result(None)
        await asyncio.sleep(0)
        assert [is_known(sequences, A, number) for number in (1, 2)] == [True, False]

    on_loop(scenario)


def test_a_new_connection_continues_the_series_of_what_is_on_its_way() -> None:
    """Otherwise it could store something behind a message of the earlier one that is refused just now."""

    async def scenario() -> None:
        sequences = Sequences(10)
        assert sequences.series_of(A) is not sequences.series_of(A)
        first, second = append(sequences, A, 1), append(sequences, A, 2)
        series = sequences.series_of(A)
        assert sequences.series_of(A) is series
        assert sequences.series_of(B) is not series
        await fail(first)
        assert sequences.series_of(A) is series
        await fail(second)
        assert sequences.series_of(A) is not series

    on_loop(scenario)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans()), max_size=30))
def test_no_message_is_known_that_was_not_stored(sends: list[tuple[int, int, bool]]) -> None:
    """Runs of messages with gaps between their numbers: each run is stored up to a message, and the client
    sends the rest again with the next run."""

    async def scenario() -> None:
        sequences = Sequences(10)
        stored, pending, last = set[int](), list[int](), 0
        for count, step, fails in [*sends, (1, 1, False)]:
            pending += range(last + step, last + step * count + 1, step)
            last = pending[-1]
            sending = [append(sequences, A, number) for number in pending]
            kept = len(pending) // 2 if fails else len(pending)
            for future in sending[:kept]:
                future.set_result(None)
            await fail(*sending[kept:])
            stored.update(pending[:kept])
            del pending[:kept]
            assert [number for number in pending if is_known(sequences, A, number)] == []
            assert all(is_known(sequences, A, number) for number in stored)
            assert sequences.last_stored(A) == max(stored, default=None)

    on_loop(scenario)


def test_chunks_of_a_message_have_numbers_of_their_own() -> None:
    async def scenario() -> None:
        def chunk(number: int) -> MessageNumber:
            piece = MessageChunk(
                uuid="u", number=number, count=3, total_size=9, compression=0, uncompressed_size=9
            )
            return number_of(
                PulsarOrigin(
                    partition=0,
                    producer="a",
                    sequence=5,
                    highest=5,
                    publish_ms=0,
                    is_batch=False,
                    is_named=True,
                    chunk=piece,
                )
            )

        sequences = Sequences(10)
        await send(sequences, A, 4, chunk(0), chunk(1))
        assert [is_known(sequences, A, each) for each in (4, chunk(1), chunk(2), 5)] == [
            True,
            True,
            False,
            False,
        ]
        await send(sequences, A, chunk(2))
        assert chunk(2) == MessageNumber(5)
        assert is_known(sequences, A, 5)

    on_loop(scenario)


def test_the_producer_unused_for_longest_is_forgotten_unless_it_is_sending() -> None:
    async def scenario() -> None:
        sequences = Sequences(2)
        await send(sequences, A, 1)
        await send(sequences, B, 1)
        sequences.changed()
        waiting = append(sequences, A, 2)
        await send(sequences, C, 1)
        assert [is_known(sequences, each, 1) for each in (A, B, C)] == [True, False, True]
        saved, forgotten = sequences.changed()
        assert (saved, forgotten) == ((SavedSequence(C, MessageNumber(1)),), (B,))
        waiting.set_result(None)

    on_loop(scenario)


def test_what_is_persisted_comes_back_with_what_the_logs_have_besides() -> None:
    async def scenario() -> None:
        before = Sequences(10)
        await send(before, A, 1)
        await send(before, B, 5)
        assert before.has_changed
        saved, forgotten = before.changed()
        assert (set(saved), forgotten) == (
            {SavedSequence(A, MessageNumber(1)), SavedSequence(B, MessageNumber(5))},
            (),
        )
        assert not before.has_changed
        after = Sequences(10)
        after.restore(saved, [SavedSequence(A, MessageNumber(3)), SavedSequence(C, MessageNumber(2, 0))])
        assert [after.last_stored(each) for each in (A, B, C)] == [3, 5, 2]
        assert is_known(after, C, MessageNumber(2, 0))
        assert not is_known(after, C, MessageNumber(2, 1))
        assert {each.producer for each in after.changed()[0]} == {A, C}  # what the database lacks

    on_loop(scenario)


def test_a_save_waits_for_what_is_on_its_way() -> None:
    async def scenario() -> None:
        sequences = Sequences(10)
        assert await sequences.settled(0)
        stored = append(sequences, A, 1)
        assert not await sequences.settled(0)
        waiting = asyncio.create_task(sequences.settled(120))
        await asyncio.sleep(0)
        stored.set_result(None)
        assert await waiting

    on_loop(scenario)


def test_the_last_messages_of_the_logs_are_of_the_producers_used_last() -> None:
    later = LaterSequences(2)
    for at, producer in enumerate((A, B, C, A)):
        later.add(producer, MessageNumber(10 - at), at)
    assert later.result() == (SavedSequence(C, MessageNumber(8)), SavedSequence(A, MessageNumber(10)))
    many = LaterSequences(2)
    for at in range(100):
        many.add(NamedProducer(1, 0, str(at)), MessageNumber(at), at)
        assert len(many._found) <= 4
    assert [each.producer.name for each in many.result()] == ["98", "99"]
