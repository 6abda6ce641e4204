"""Producers of one partition: names, epochs and the four access modes."""

from dataclasses import dataclass

import pytest

from loghub_service.pulsar.broker.producer_access import Joined, PartitionProducers
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.producers import ProducerAccessMode as Mode

BUSY, FENCED = ServerError.PRODUCER_BUSY, ServerError.PRODUCER_FENCED


@dataclass(frozen=True, eq=False)
class Producer:
    name: str
    mode: Mode = Mode.SHARED
    epoch: int = 0
    topic_epoch: int | None = None

    @property
    def key(self) -> str:
        return self.name


def refused(producers: PartitionProducers[Producer], claim: Producer) -> ServerError:
    before = list(producers)
    with pytest.raises(RefusedCommand) as caught:
        producers.join(claim)
    assert list(producers) == before
    return caught.value.code


def of(*claims: Producer) -> PartitionProducers[Producer]:
    producers = PartitionProducers[Producer]()
    for claim in claims:
        producers.join(claim)
    return producers


def test_shared_producers_are_many_with_a_name_each() -> None:
    first = Producer("a")
    producers = of(first, Producer("b"))
    assert refused(producers, Producer("a")) is BUSY
    again = Producer("a", epoch=1)
    assert producers.join(again) == Joined(is_ready=True, replaced=first)
    assert refused(producers, Producer("a", epoch=1)) is BUSY
    assert [each.name for each in producers] == ["b", "a"]
    producers.leave(first)  # whose connection ends after it was replaced
    assert again in producers
    assert producers.topic_epoch is None


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.WAIT_FOR_EXCLUSIVE, Mode.EXCLUSIVE_WITH_FENCING])
def test_the_only_producer_keeps_others_out(mode: Mode) -> None:
    only = Producer("a", mode)
    producers = of(only)
    assert producers.topic_epoch == 0
    assert refused(producers, Producer("b")) is BUSY
    assert refused(producers, Producer("b", Mode.EXCLUSIVE)) is FENCED
    assert producers.leave(only) is None
    assert producers.join(Producer("b")) == Joined(is_ready=True)


def test_an_exclusive_producer_needs_an_empty_partition() -> None:
    assert refused(of(Producer("a")), Producer("b", Mode.EXCLUSIVE)) is FENCED


def test_who_waits_begins_when_the_last_other_one_has_left() -> None:
    first, second = Producer("a"), Producer("b")
    producers = of(first, second)
    waiting, next_one = Producer("c", Mode.WAIT_FOR_EXCLUSIVE), Producer("d", Mode.WAIT_FOR_EXCLUSIVE)
    assert producers.join(waiting) == producers.join(next_one) == Joined(is_ready=False)
    assert refused(producers, Producer("e")) is BUSY
    assert refused(producers, Producer("c")) is BUSY
    assert producers.leave(first) is None
    assert producers.leave(second) is waiting
    assert producers.topic_epoch == 0
    assert producers.leave(waiting) is next_one
    assert producers.topic_epoch == 1


def test_who_waits_may_give_up() -> None:
    first, waiting = Producer("a"), Producer("c", Mode.WAIT_FOR_EXCLUSIVE)
    producers = of(first, waiting)
    assert producers.leave(waiting) is None
    assert producers.leave(first) is None
    assert list(producers) == []


def test_fencing_ends_all_others() -> None:
    shared, waiting = Producer("a"), Producer("b", Mode.WAIT_FOR_EXCLUSIVE)
    producers = of(shared, waiting)
    fencing = Producer("c", Mode.EXCLUSIVE_WITH_FENCING)
    assert producers.join(fencing) == Joined(is_ready=True, fenced=(shared,), refused=(waiting,))
    assert list(producers) == [fencing]
    other = Producer("d", Mode.EXCLUSIVE_WITH_FENCING)
    assert producers.join(other) == Joined(is_ready=True, fenced=(fencing,))
    assert producers.topic_epoch == 1
    # The first of them connects again.
    assert refused(producers, Producer("c", Mode.EXCLUSIVE_WITH_FENCING, epoch=1, topic_epoch=0)) is FENCED
    producers.leave(other)
    assert refused(producers, Producer("c", Mode.EXCLUSIVE_WITH_FENCING, epoch=1, topic_epoch=0)) is FENCED
    producers.join(Producer("d", Mode.EXCLUSIVE_WITH_FENCING, epoch=1, topic_epoch=1))
    assert producers.topic_epoch == 1


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.WAIT_FOR_EXCLUSIVE, Mode.EXCLUSIVE_WITH_FENCING])
def test_the_only_producer_comes_back_over_another_connection(mode: Mode) -> None:
    only = Producer("a", mode)
    producers = of(only)
    back = Producer("a", mode, epoch=1, topic_epoch=0)
    assert producers.join(back) == Joined(is_ready=True, replaced=only)
    assert producers.topic_epoch == 0
    producers.leave(only)
    assert list(producers) == [back]


def test_an_epoch_from_before_a_restart_is_taken_over() -> None:
    producers = PartitionProducers[Producer](topic_epoch=5)
    assert refused(producers, Producer("a", Mode.EXCLUSIVE, epoch=1, topic_epoch=4)) is FENCED
    producers.join(Producer("a", Mode.EXCLUSIVE, epoch=1, topic_epoch=5))
    assert producers.topic_epoch == 5


@pytest.mark.parametrize("known", [None, 5])
def test_an_epoch_that_was_never_given_is_not_taken_over(known: int | None) -> None:
    """A client may claim any number, also one that no database and no answer can have."""
    producers = PartitionProducers[Producer](topic_epoch=known)
    producers.join(Producer("a", Mode.EXCLUSIVE, topic_epoch=(1 << 64) - 1))
    assert producers.topic_epoch == (0 if known is None else known + 1)
