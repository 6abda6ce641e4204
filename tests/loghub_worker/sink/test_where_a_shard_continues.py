"""What becomes of the logs in a sink that delivers exactly once when something happens to its group, to the
logstore or to the sink: each event with each sink, by the records of the sinks and the worker's own rule
(docs/sinks.md 7).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loghub_worker.sink.one_shard_life import BATCH, LOGSTORE, Life
from tests.loghub_worker.sink.places import InDelta, InFolder, InPostgresql, Place
from tests.postgresql_server import running_postgresql, write_credentials

FIRST, LATER = 30, 10  # log groups before and after what happens
Event = Callable[[Life], None]
END = FIRST + LATER


def first_life(life: Life) -> None:
    life.run()
    life.put(FIRST)
    life.run()
    assert life.place.lines().total() == FIRST


def group_lost(life: Life) -> None:
    first_life(life)
    life.lose_group()
    life.expect(0, END)


def group_lost_after_one_batch(life: Life) -> None:
    """Whose begin is where the start position points again."""
    life.batch = FIRST
    group_lost(life)


def group_lost_that_began_at_the_end(life: Life) -> None:
    """The start position points behind logs that nobody has read."""
    life.start = "end"
    first_life(life)
    life.put(LATER)
    life.lose_group()
    life.expect(0, END)


def killed_before_the_checkpoint(life: Life) -> None:
    life.put(FIRST)
    life.run(saves=False)
    life.run(saves=False)
    life.expect(0, END)


def killed_before_the_checkpoint_and_group_lost(life: Life) -> None:
    killed_before_the_checkpoint(life)
    life.lose_group()


def an_older_checkpoint_of_a_worker(life: Life) -> None:
    """A request that was late, or a log service that was restored."""
    first_life(life)
    life.move(12, by="w-1")
    life.expect(0, END)


def reset_back(life: Life) -> None:
    first_life(life)
    life.move(5)
    life.expect(0, FIRST)
    life.expect(5, END)


def reset_to_the_begin_of_all(life: Life) -> None:
    life.batch = FIRST
    first_life(life)
    life.move(0)
    life.expect(0, FIRST)
    life.expect(0, END)


def reset_to_where_the_last_batch_began(life: Life) -> None:
    first_life(life)
    life.move(FIRST - BATCH)
    life.expect(0, FIRST)
    life.expect(FIRST - BATCH, END)


def reset_into_the_last_batch(life: Life) -> None:
    """Which began before, and ends after."""
    life.batch = FIRST
    first_life(life)
    life.move(12)
    life.expect(0, FIRST)
    life.expect(12, END)


def reset_back_and_killed(life: Life) -> None:
    """In the middle of what comes again; the next worker goes on there."""
    first_life(life)
    life.move(5)
    life.run(saves=False)
    life.run(saves=False)
    life.expect(0, FIRST)
    life.expect(5, END)


def reset_forward(life: Life) -> None:
    first_life(life)
    life.put(LATER)
    life.move(END - 2)
    life.expect(0, FIRST)
    life.expect(END - 2, END)


def group_lost_and_reset(life: Life) -> None:
    """As a user does who wants to have all logs again."""
    first_life(life)
    life.lose_group()
    life.move(0)
    life.expect(0, FIRST)
    life.expect(0, END)


def adopted_from_another_program(life: Life) -> None:
    life.put(FIRST)
    life.move(12, by="vendor")
    life.expect(12, END)


def logstore_created_again(life: Life) -> None:
    first_life(life)
    life.expect(0, FIRST)
    life.client.delete_logstore(LOGSTORE)
    life.clock.now += 100
    life.begin_logstore()
    life.put(FIRST)
    life.expect(0, END)


def another_endpoint(life: Life) -> None:
    """Whose project, logstore and group have the same names."""
    first_life(life)
    life.expect(0, FIRST)
    life.begin_service()
    life.put(FIRST)
    life.expect(0, END)


def another_project(life: Life) -> None:
    first_life(life)
    life.expect(0, FIRST)
    life.project = "another"
    life.begin_service()
    life.put(FIRST)
    life.expect(0, END)


def rows_removed(life: Life) -> None:
    first_life(life)
    life.place.remove_rows()
    life.expect(FIRST, END)


def rows_removed_and_group_lost(life: Life) -> None:
    first_life(life)
    life.place.remove_rows()
    life.lose_group()
    life.expect(FIRST, END)


def rows_removed_and_reset(life: Life) -> None:
    first_life(life)
    life.place.remove_rows()
    life.move(0)
    life.expect(0, END)


def emptied(life: Life) -> None:
    first_life(life)
    life.place.remove_all()
    life.expect(FIRST, END)


def emptied_and_group_lost(life: Life) -> None:
    """All that knew of the first life."""
    first_life(life)
    life.place.remove_all()
    life.lose_group()
    life.is_lost = False
    life.expect(0, END)


def restored_from_an_older_copy(life: Life) -> None:
    """Nothing tells it from a checkpoint that was moved forward; the logs between are missing."""
    life.put(BATCH)
    life.run()
    life.expect(0, BATCH)
    life.place.copy()
    life.put(FIRST - BATCH)
    life.run()
    life.place.restore()
    life.expect(FIRST, END)


def restored_and_reset(life: Life) -> None:
    restored_from_an_older_copy(life)
    life.move(BATCH)
    life.expect(BATCH, FIRST)


def restored_and_group_lost(life: Life) -> None:
    restored_from_an_older_copy(life)
    life.lose_group()
    life.expect(BATCH, FIRST)


def shared_by_two_groups(life: Life) -> None:
    """Each of them delivers all logs."""
    first_life(life)
    life.begin_group("h")
    life.run("h")
    life.lose_group()
    life.expect(0, FIRST)
    life.expect(0, END)


def on_sls_group_lost(life: Life) -> None:
    life.is_sls = True
    group_lost(life)


def on_sls_killed(life: Life) -> None:
    life.is_sls = True
    killed_before_the_checkpoint(life)


def on_sls_reset_back(life: Life) -> None:
    """Nobody says that it is one. A Delta table keeps one position and takes it for a late checkpoint."""
    life.is_sls = True
    first_life(life)
    life.move(5)
    life.expect(0, FIRST)
    life.expect(FIRST if isinstance(life.place, InDelta) else 5, END)


EVENTS: list[Event] = [
    group_lost,
    group_lost_after_one_batch,
    group_lost_that_began_at_the_end,
    killed_before_the_checkpoint,
    killed_before_the_checkpoint_and_group_lost,
    an_older_checkpoint_of_a_worker,
    reset_back,
    reset_to_the_begin_of_all,
    reset_to_where_the_last_batch_began,
    reset_into_the_last_batch,
    reset_back_and_killed,
    reset_forward,
    group_lost_and_reset,
    adopted_from_another_program,
    logstore_created_again,
    another_endpoint,
    another_project,
    rows_removed,
    rows_removed_and_group_lost,
    rows_removed_and_reset,
    emptied,
    emptied_and_group_lost,
    restored_from_an_older_copy,
    restored_and_reset,
    restored_and_group_lost,
    shared_by_two_groups,
    on_sls_group_lost,
    on_sls_killed,
    on_sls_reset_back,
]


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], InPostgresql]]:
    credentials = write_credentials(tmp_path_factory.mktemp("credentials"))
    with running_postgresql() as server:
        yield lambda schema: InPostgresql(server, credentials, schema)


# With PostgreSQL, whose ranges are recorded as those of files are.
REPRESENTATIVES = [
    group_lost_that_began_at_the_end,
    an_older_checkpoint_of_a_worker,
    reset_into_the_last_batch,
    rows_removed_and_group_lost,
    restored_and_group_lost,
    shared_by_two_groups,
    on_sls_reset_back,
]


def cases() -> Iterator[Any]:
    for event in EVENTS:
        for kind in ("files", "delta", "postgresql"):
            is_deep = kind == "postgresql" and event not in REPRESENTATIVES
            yield pytest.param(event, kind, id=f"{kind}-{event.__name__}", marks=[pytest.mark.deep] * is_deep)


@pytest.fixture
def place(request: Any, kind: str, event: Event, tmp_path: Path) -> Place:
    if kind == "postgresql":
        made: Place = request.getfixturevalue("postgresql")(event.__name__)
        return made
    return InFolder(tmp_path) if kind == "files" else InDelta(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("event", "kind"), [*cases()])
def test_each_log_is_in_the_sink_as_often_as_the_rule_says(place: Place, event: Event, kind: str) -> None:
    life = Life(place)
    event(life)
    life.put(max(0, life.cursor("begin") + END - life.cursor("end")))
    life.run()
    assert life.place.lines() == life.expected
    assert (0 in life.continued) == life.is_lost, "condition GroupWasLost says so"
    life.run()
    assert life.place.lines() == life.expected, "the next worker finds nothing to do"
    assert not life.continued
