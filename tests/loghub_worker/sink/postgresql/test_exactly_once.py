"""Workers that race for the same shards, die or pause at any step: each line is in the table once."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin
from loghub_worker.query.batch_errors import is_outage
from loghub_worker.sink.batch_sink import RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.postgresql.database import OPENING_CONNECTIONS
from tests.loghub_worker.sink.in_turn import in_turn
from tests.loghub_worker.sink.postgresql.line_worker import (
    BEGIN,
    CREATE,
    END,
    SHARDS,
    LineWorker,
    delivered,
    everything,
    lines_of,
)
from tests.postgresql_server import PostgresqlServer
from tests.support import ROOT

pytestmark = pytest.mark.long  # each test has a database of a real server

GUARD_S = 120
STEPS = [
    *(("opened", nth) for nth in (1, 2)),
    *((step, 1) for step in ("checkpoint read", "confirmed", "resumed")),
    *((step, nth) for step in ("copied", "locked", "recorded", "committed") for nth in (1, 2)),
    ("checkpoint saved", 1),
    ("checkpoint saved", 3),
    ("checkpoint saved", 4),
]


def test_three_processes_that_race_and_die_deliver_each_line_once(
    server: PostgresqlServer, credentials: Path, tmp_path: Path
) -> None:
    """Each opens all shards again after each refusal and after each death, so that shards are taken over all
    the time."""
    server.execute(CREATE, user="loghub")
    module = "tests.loghub_worker.sink.postgresql.line_worker"
    common = (sys.executable, "-m", module, str(server.port), str(tmp_path), str(credentials))
    with ExitStack() as processes:
        racing = []
        for number in range(3):
            process = subprocess.Popen(
                [*common, f"w-{number}", str(number)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            processes.enter_context(process)
            processes.callback(process.kill)
            racing.append(process)
        for process in racing:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        outputs = list(ThreadPoolExecutor(3).map(lambda one: one.communicate("go\n")[0], racing))
    totals = sum((Counter(json.loads(text)) for text in outputs), Counter())
    print(f"\n3 processes: {delivered(server).total()} lines, {dict(totals)}")
    assert delivered(server) == everything()
    assert totals["deaths"] > 0
    assert totals["refused"] > 0


@contextmanager
def paused(worker: Callable[..., LineWorker], step: str, nth: int) -> Iterator[LineWorker]:
    """A worker that pauses at a step while the body runs, and never learns that it lost its shards."""
    reached, go_on, seen = threading.Event(), threading.Event(), []

    def at_step(name: str) -> None:
        seen.append(name)
        if name == step and seen.count(step) == nth:
            reached.set()
            assert go_on.wait(GUARD_S)

    def run() -> None:
        try:
            first.assign(SHARDS)
            while first.deliver():
                pass
        except (RangeTakenError, SinkUnreachableError):
            return

    first = worker(at_step=at_step)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert reached.wait(GUARD_S), "the step was never reached"
    try:
        yield first
    finally:
        go_on.set()
        thread.join(GUARD_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(("step", "nth", "batches"), in_turn(STEPS, {"none": 0, "one": 1, "all": 9}))
def test_two_workers_on_one_shard_deliver_each_line_once(
    worker: Callable[..., LineWorker], server: PostgresqlServer, step: str, nth: int, batches: int
) -> None:
    """The second worker delivers so many batches while the first one pauses, and the rest of them once the
    first has gone on. While that one has the lock of a shard, nobody opens it."""
    second = worker()
    opened = step not in ("locked", "recorded")
    with paused(worker, step, nth):
        if opened:
            second.assign(SHARDS)
            for _ in range(batches):
                second.deliver()
    if not opened:
        second.assign(SHARDS)
    try:
        while second.deliver():
            pass
    except RangeTakenError:  # the first has opened a shard after it
        second.run()
    assert delivered(server) == everything()


def test_a_worker_that_pauses_with_the_lock_of_a_shard_loses_it(
    worker: Callable[..., LineWorker], server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session, and the next worker opens the shard."""
    monkeypatch.setattr("loghub_worker.sink.postgresql.database.IDLE_TIMEOUT_S", 0.2)
    second = worker()
    with paused(worker, "recorded", 1):
        second.run()
    assert delivered(server) == everything()


def test_an_opener_does_not_wait_for_longer_than_the_lock_timeout(
    worker: Callable[..., LineWorker], server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loghub_worker.sink.postgresql.database.LOCK_TIMEOUT_S", 0.1)
    second = worker()
    with paused(worker, "recorded", 1), pytest.raises(SinkUnreachableError, match="lock"):
        second.assign(SHARDS)
    second.run()
    assert delivered(server) == everything()


def test_a_range_is_refused_that_was_delivered_or_whose_shard_was_opened(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    first, second = worker(), worker()
    first.assign(SHARDS)
    first.deliver()
    second.assign((0,))
    with pytest.raises(RangeTakenError, match="shard 0 was opened by another worker"):
        first.deliver()
    ranges = (Range(0, BEGIN + 10, BEGIN + 12),)
    second.sink.publish(second.write(ranges), ranges, lambda: True)
    with pytest.raises(RangeTakenError, match="another batch delivers one of the ranges"):
        second.sink.publish(second.write(ranges), ranges, lambda: True)
    with pytest.raises(SessionLostError):
        second.sink.publish(second.write(ranges), ranges, lambda: False)
    assert delivered(server) == lines_of(0, BEGIN, BEGIN + 12) + lines_of(1, BEGIN, BEGIN + 10)


def test_a_batch_that_was_aborted_is_delivered_by_the_next_one(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    first = worker()
    first.assign(SHARDS)
    first.sink.abort(first.write((Range(0, BEGIN, BEGIN + 10),)))
    first.sink.abort("another")
    first.run()
    assert delivered(server) == everything()


def test_ranges_that_only_skip_log_groups_are_recorded_without_rows(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    first, second = worker(), worker()
    first.assign((0,))
    first.sink.publish("w-0-skipped", (Range(0, BEGIN, BEGIN + 1),), lambda: True)
    second.assign((0,))
    assert second.positions == {0: BEGIN + 1}
    assert delivered(server).total() == 0


def test_a_checkpoint_that_was_moved_back_on_purpose_delivers_again(
    worker: Callable[..., LineWorker], server: PostgresqlServer, tmp_path: Path
) -> None:
    first, second = worker(), worker()
    first.assign((0,))
    for save in (True, True, False):
        first.deliver(save=save)
    (tmp_path / "checkpoints" / "0").write_text(str(BEGIN + 10))
    second.assign((0,), origin=CheckpointOrigin.MOVED)
    assert second.positions == {0: BEGIN + 10}
    while second.deliver():
        pass
    assert delivered(server) == lines_of(0, BEGIN, END) + lines_of(0, BEGIN + 10, BEGIN + 30)


def test_what_is_left_after_the_checkpoint_is_delivered_again(
    worker: Callable[..., LineWorker], server: PostgresqlServer, tmp_path: Path
) -> None:
    """The checkpoint was moved back to a cursor at which no batch began."""
    first, second = worker(), worker()
    first.assign((0,))
    first.deliver()
    first.deliver(save=False)
    (tmp_path / "checkpoints" / "0").write_text(str(BEGIN + 5))
    second.assign((0,), origin=CheckpointOrigin.UNKNOWN)
    second.deliver()
    second.deliver()
    assert delivered(server) == lines_of(0, BEGIN, BEGIN + 20) + lines_of(0, BEGIN + 5, BEGIN + 25)


def test_ranges_before_the_checkpoint_are_removed_with_the_next_batch(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    first = worker()
    first.assign(SHARDS)
    counts = []
    while first.deliver():
        counts.append(server.rows("SELECT count(*) FROM loghub_ranges")[0][0])
    assert counts == [2] * len(counts)
    first.assign(SHARDS)
    assert server.rows("SELECT count(*) FROM loghub_ranges") == [(2,)]


def test_another_group_in_the_same_schema_is_not_touched(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    first = worker()
    ranges = "SELECT 'p', 'l', 'other', 0, 1, g, g + 1, 'b' FROM generate_series(90, 200) g"
    server.execute(f"INSERT INTO loghub_ranges {ranges}")
    first.run()
    assert server.rows("SELECT count(*) FROM loghub_ranges WHERE consumer_group = 'other'") == [(111,)]
    assert delivered(server) == everything()


def test_a_batch_that_takes_the_server_too_long_is_divided(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    """As an outage it would be tried again as a whole, forever."""
    server.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;"
        " CREATE TRIGGER t AFTER INSERT ON lines FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    groups = [10]
    one = worker(statement_timeout_s=1.0, groups=lambda: groups[0])
    one.assign((0,))
    with pytest.raises(RowsRejectedError, match="took longer than") as caught:
        one.deliver()
    assert not is_outage(caught.value)
    assert delivered(server).total() == 0
    groups[0] = 1
    one.deliver()
    assert delivered(server) == lines_of(0, BEGIN, BEGIN + 1)


def test_shards_are_opened_on_few_connections_at_the_same_time(
    server: PostgresqlServer, credentials: Path, tmp_path: Path
) -> None:
    """Four meet at the barrier, and never a fifth."""
    together, lock, now, maximum = threading.Barrier(OPENING_CONNECTIONS), threading.Lock(), 0, 0

    def at_step(step: str) -> None:
        nonlocal now, maximum
        if step == "opening":
            with lock:
                now += 1
                maximum = max(maximum, now)
            together.wait(GUARD_S)
            with lock:
                now -= 1

    worker = LineWorker(tmp_path, server.port, credentials, "w", at_step=at_step)
    shards = range(OPENING_CONNECTIONS * 3)
    with ThreadPoolExecutor(len(shards)) as pool:
        list(pool.map(lambda shard: worker.assign([shard]), shards))
    assert worker.positions == dict.fromkeys(shards, BEGIN)
    assert maximum == OPENING_CONNECTIONS
