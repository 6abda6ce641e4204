"""How often checkpoints are saved: at most every so often, at once where another waits for it."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.wire.cursor import decode
from loghub_worker.exchange_files import Report
from loghub_worker.membership.state import Phase, ShutdownMode
from tests.loghub_worker.membership.test_shard_manager import GROUP, World

INTERVAL_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, groups=20, save_every_s=INTERVAL_S)


def saved(world: World) -> int:
    """Log groups behind the checkpoint."""
    return decode(world.checkpoint()) - world.begin


def advance(world: World, groups: int) -> None:
    """The sink has this many groups more."""
    with world.session.use() as (consumer, _):
        (held,) = consumer.shards
    assert held.position is not None
    world.commit(held.position, held.position + groups)
    world.keeper.save_all()


def wait(world: World, rounds: int) -> None:
    """Five seconds a round, with a beat and a look in each."""
    for _ in range(rounds):
        world.round()


def test_saved_once_an_interval_with_a_batch_or_without(world: World) -> None:
    advance(world, 2)
    assert saved(world) == 0
    wait(world, 11)
    advance(world, 2)
    assert saved(world) == 0
    wait(world, 1)
    assert saved(world) == 4
    advance(world, 2)
    assert saved(world) == 4


@pytest.mark.parametrize("goal", [ShutdownMode.STOP, ShutdownMode.LEAVE])
def test_who_ends_saves_at_once(world: World, goal: ShutdownMode) -> None:
    advance(world, 3)
    with world.session.use() as (consumer, _):
        consumer.set_goal(goal)
    world.keeper.step()
    assert saved(world) == 3


def test_a_shard_given_up_is_saved_at_once(world: World) -> None:
    advance(world, 3)
    other = world.hub.heartbeat("ls", "g", consumer="d", held=())
    assert other == (), "the shard is on its way, once the holder lets it go"
    with world.session.use() as (consumer, _):
        consumer.refused(0, epoch=99)  # another taking: nothing happens
        (held,) = consumer.shards
        consumer._drop(held)
    assert world.held() == {0: Phase.DRAINING}
    world.keeper.step()
    assert saved(world) == 3


def test_the_end_of_a_read_only_shard_is_saved_at_once(world: World) -> None:
    advance(world, 19)
    world.hub.split_shard("ls", 0)
    world.handover.write_report(Report(version=0, ends={0: world.begin + 20}))
    world.clock.now += 11
    world.keeper.step()
    assert saved(world) == 0, "its end is not reached"
    advance(world, 1)
    assert saved(world) == 20


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, 18)),
        st.tuples(st.just("trouble"), st.integers(1, 4)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=60)
def test_never_more_than_the_sink_has_nor_oftener_than_asked(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), groups=1, save_every_s=INTERVAL_S, timeout_s=30.0)
        in_sink, before, saved_s = 0, 0, world.keeper._saved_s[0]
        for what, how_much in steps:
            if what == "commit":
                for _ in range(how_much):
                    world.hub.put_logs("ls", GROUP)
                in_sink += how_much
                advance(world, how_much)
            elif what == "wait":
                wait(world, how_much)
            elif what == "trouble":
                world.server.unreachable = True
                wait(world, how_much)
                world.server.unreachable = False
                wait(world, 1)  # two troubles without a beat between them would lose the shard
            now_saved = saved(world)
            assert before <= now_saved <= in_sink
            if now_saved != before:
                assert world.keeper._saved_s[0] - saved_s >= INTERVAL_S
                before, saved_s = now_saved, world.keeper._saved_s[0]
