"""What the membership offers to a source that moves each shard by itself: positions, releases, saves."""

from pathlib import Path

import pytest

from loghub.wire.cursor import decode
from loghub.wire.errors import EndpointUnreachable, LogHubError
from loghub_consumer.membership.membership import (
    Membership,
    MembershipTimings,
    MemberState,
    SendHeartbeat,
    ShardPhase,
    ShutdownMode,
)
from tests.loghub_consumer.membership.one_shard_worker import OneShardWorker

SESSION_S = 26


def holder(*shards: int) -> Membership:
    """A member whose open shards are at cursor 10."""
    membership = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    membership.source_started()
    heartbeat(membership, 0, *shards)
    for held in membership.shards:
        membership.opened(held.shard, epoch=held.epoch, position=10, saved=10)
    return membership


def heartbeat(membership: Membership, now: float, *assigned: int) -> tuple[int, ...]:
    request = membership.poll(now)
    assert isinstance(request, SendHeartbeat)
    membership.answered(request.number, assigned, now=now)
    return request.held


def positions(membership: Membership) -> dict[int, int | None]:
    return {held.shard: held.position for held in membership.shards}


def epoch(membership: Membership, shard: int) -> int:
    return next(held.epoch for held in membership.shards if held.shard == shard)


def test_the_margin_is_a_part_of_the_timeout_up_to_a_bound() -> None:
    assert MembershipTimings.of(interval_s=5, timeout_s=10).margin_s == 2
    assert MembershipTimings.of(interval_s=5, timeout_s=300).margin_s == 5


def test_a_shard_moves_forward_and_back_while_it_is_held() -> None:
    membership = holder(1, 2)
    for position in (30, 20):
        assert membership.moved(1, epoch=epoch(membership, 1), position=position, now=1)
        assert positions(membership) == {1: position, 2: 10}
        assert [held.shard for held in membership.unsaved()] == [1]


def test_a_shard_moves_while_it_drains_and_not_once_it_is_refused_lost_or_assigned_again() -> None:
    membership = holder(1, 2)
    first = epoch(membership, 1)
    heartbeat(membership, 5)
    assert membership.moved(1, epoch=first, position=11, now=6)
    assert not membership.moved(1, epoch=first + 9, position=12, now=6)
    membership.refused(1, epoch=first)
    assert not membership.moved(1, epoch=first, position=12, now=6)
    assert membership.moved(2, epoch=epoch(membership, 2), position=12, now=5 + SESSION_S - 1)
    assert not membership.moved(2, epoch=epoch(membership, 2), position=13, now=5 + SESSION_S)
    assert membership.state is MemberState.FENCED


def test_a_draining_shard_is_released_alone_once_its_source_has_released_it_and_it_is_saved() -> None:
    membership = holder(1, 2)
    epochs = {shard: epoch(membership, shard) for shard in (1, 2)}
    membership.source_released(1, epoch=epochs[1])
    assert positions(membership) == {1: 10, 2: 10}, "it does not drain"
    membership.moved(1, epoch=epochs[1], position=11, now=1)
    heartbeat(membership, 5)
    membership.source_released(1, epoch=epochs[1])
    assert positions(membership) == {1: 11, 2: 10}, "it is not saved"
    membership.saved(1, epoch=epochs[1], cursor=11)
    assert positions(membership) == {2: 10}, "the other one is still read"
    membership.source_released(2, epoch=epochs[2] + 1)
    assert positions(membership) == {2: 10}, "that was another assignment"
    membership.source_released(2, epoch=epochs[2])
    assert positions(membership) == {}


def test_a_released_shard_of_a_consumer_that_stops_stays_reported() -> None:
    membership = holder(1)
    membership.set_shutdown_mode(ShutdownMode.STOP)
    membership.source_released(1, epoch=epoch(membership, 1))
    assert [held.phase for held in membership.shards] == [ShardPhase.DRAINED]
    assert heartbeat(membership, 5, 1) == (1,)


@pytest.fixture
def worker(tmp_path: Path) -> OneShardWorker:
    return OneShardWorker(tmp_path, groups=20, checkpoint_interval_s=3600)


def move(worker: OneShardWorker, groups: int) -> int:
    """Move the shard, and return the epoch of its assignment."""
    with worker.shared_state.use() as (membership, now):
        (held,) = membership.shards
        assert membership.moved(0, epoch=held.epoch, position=worker.begin + groups, now=now)
    return held.epoch


def test_a_position_is_saved_at_once_whatever_the_interval_also_an_earlier_one(
    worker: OneShardWorker,
) -> None:
    for groups in (7, 3):
        epoch = move(worker, groups)
        worker.shard_manager.save_all()
        assert decode(worker.checkpoint()) != worker.begin + groups
        worker.shard_manager.save_now(0, epoch=epoch)
        assert decode(worker.checkpoint()) == worker.begin + groups


def test_a_save_that_fails_raises_and_is_made_up_for_when_the_shard_is_given_up(
    worker: OneShardWorker,
) -> None:
    epoch = move(worker, 7)
    worker.server.unreachable = True
    with pytest.raises(EndpointUnreachable):
        worker.shard_manager.save_now(0, epoch=epoch)
    worker.server.unreachable = False
    with worker.shared_state.use() as (membership, _):
        membership.set_shutdown_mode(ShutdownMode.LEAVE)
    worker.clock.now += 2
    worker.shard_manager.step()
    assert decode(worker.checkpoint()) == worker.begin + 7


def test_a_save_of_an_ended_assignment_is_refused_and_sends_nothing(worker: OneShardWorker) -> None:
    epoch = move(worker, 7)
    with pytest.raises(LogHubError, match="ConsumerNotMatch"):
        worker.shard_manager.save_now(0, epoch=epoch + 1)
    worker.clock.now += SESSION_S  # it is over here, and not yet at the service
    with pytest.raises(LogHubError, match="ConsumerNotMatch"):
        worker.shard_manager.save_now(0, epoch=epoch)
    assert decode(worker.checkpoint()) == worker.begin
