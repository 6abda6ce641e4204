"""Offsets that are kept outside of Kafka, in one transaction with the results: each record exactly once.

The consumers are static members of a group, so that a new process takes the place of a killed one at once.
"""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.compat.kafka.client_programs import GROUP, GUARD_S, SESSION_S, TOPIC, KafkaPlace
from tests.postgresql_server import DATABASE, PASSWORDS, SUPERUSER, PostgresqlServer, running_postgresql
from tests.suite.seed import of_run
from tests.support import wait_until

pytestmark = pytest.mark.long
PROGRAM = Path(__file__).with_name("programs") / "table_writer.py"
PARTITIONS, CHUNK = 4, 200
CREATE = (
    "CREATE TABLE results (number {serial}, part INTEGER, place BIGINT, value TEXT)",
    "CREATE TABLE positions (part INTEGER PRIMARY KEY, next BIGINT)",
)


class Database:
    """Where the results are, by the connection string that the program gets."""

    def __init__(self, name: str, connection: Any, serial: str) -> None:
        self.name = name
        self._connection = connection
        for statement in CREATE:
            connection.execute(f"DROP TABLE IF EXISTS {statement.split()[2]}")
            connection.execute(statement.format(serial=serial))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return found

    def count(self) -> int:
        return int(self.rows("SELECT count(*) FROM results")[0][0])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.deep(minutes=5))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        file = str(tmp_path / "results.sqlite")
        with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            yield Database(file, connection, "INTEGER PRIMARY KEY AUTOINCREMENT")
        return
    server = request.getfixturevalue("server")
    with closing(server.connect()) as served:
        login = f"user={SUPERUSER} password='{PASSWORDS[SUPERUSER].replace(chr(39), chr(92) + chr(39))}'"
        name = f"host=127.0.0.1 port={server.port} dbname={DATABASE} {login}"
        yield Database(name, served, "BIGSERIAL")


@dataclass
class Writer:
    """One running program, and the partitions that it was assigned last."""

    process: "subprocess.Popen[bytes]"
    errors: Path
    assigned: set[int] = field(default_factory=set)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.assigned = set(json.loads(line)["assigned"])

    def kill(self) -> None:
        assert self.process.poll() is None, self.errors.read_text()[-3000:]
        self.process.kill()
        self.process.wait(GUARD_S)


class Writers:
    """The members of the group; each name has one process at a time."""

    def __init__(self, place: KafkaPlace, database: Database, folder: Path) -> None:
        self._place = place
        self._database = database
        self._folder = folder
        self.running: dict[str, Writer] = {}

    def start(self, name: str) -> Writer:
        consumer = {
            **self._place.librdkafka,
            "group.id": GROUP,
            "group.instance.id": name,
            "session.timeout.ms": SESSION_S * 1000,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a position that is lost is an error, never a gap
        }
        settings = {"consumer": consumer, "topic": TOPIC, "database": self._database.name}
        errors = self._folder / f"{name}.log"
        with errors.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        writer = self.running[name] = Writer(process, errors)
        threading.Thread(target=writer.read, daemon=True).start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        return writer

    def kill_all(self) -> None:
        for writer in self.running.values():
            writer.kill()


@pytest.fixture
def writers(place: KafkaPlace, database: Database, tmp_path: Path) -> Iterator[Writers]:
    made = Writers(place, database, tmp_path)
    try:
        yield made
    finally:
        for writer in made.running.values():
            writer.process.kill()
            writer.process.wait(GUARD_S)


def wait_count(database: Database, count: int) -> None:
    wait_until(lambda: database.count() >= count, f"{count} rows", guard_s=GUARD_S)


def check(database: Database, place: KafkaPlace, sent: list[str]) -> None:
    """The table has what was sent, each value once, and each partition in its order."""
    rows = database.rows("SELECT part, place, value FROM results ORDER BY number")
    assert sorted(value for *_, value in rows) == sorted(sent)
    by_partition = {part: [at for of, at, _ in rows if of == part] for part in range(PARTITIONS)}
    for offsets in by_partition.values():
        assert offsets == sorted(set(offsets))
    places = [[TOPIC, part] for part in range(PARTITIONS)]
    ends = [end for _, end in place.producer("confluent").ask("ends", places=places)["offsets"]]
    assert database.rows("SELECT next FROM positions ORDER BY part") == [(end,) for end in ends]


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.deep(minutes=5))])
def test_consumers_that_are_killed_leave_no_gap_and_write_nothing_twice(
    place: KafkaPlace, database: Database, writers: Writers, kills: int
) -> None:
    place.create(shards=PARTITIONS)
    choose = random.Random(of_run() + kills)
    producer = place.producer("confluent")
    sent: list[str] = []
    for name in ("a", "b"):
        writers.start(name)
    for _ in range(kills):
        before = len(sent)
        chunk = [f"value {number}" for number in range(before, before + CHUNK)]
        producer.send("produce", topic=TOPIC, records=[[-1, value, value] for value in chunk])
        sent += chunk
        wait_count(database, before + choose.randrange(1, CHUNK))
        name = choose.choice("ab")
        writers.running[name].kill()
        assert producer.answer("produce")["failed"] == 0
        writers.start(name)
        wait_count(database, len(sent))
    writers.kill_all()
    check(database, place, sent)


def test_a_member_that_was_paused_until_others_had_its_partitions_writes_nothing_twice(
    place: KafkaPlace, database: Database, writers: Writers
) -> None:
    place.create(shards=PARTITIONS)
    producer = place.producer("confluent")
    sent = [f"value {number}" for number in range(3 * CHUNK)]
    paused, other = (writers.start(name) for name in ("a", "b"))
    wait_until(lambda: paused.assigned | other.assigned == set(range(PARTITIONS)), "shared", guard_s=GUARD_S)
    producer.send("produce", topic=TOPIC, records=[[-1, value, value] for value in sent[: 2 * CHUNK]])
    wait_count(database, CHUNK)
    paused.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: other.assigned == set(range(PARTITIONS)), "the take-over", guard_s=GUARD_S)
        assert producer.answer("produce")["failed"] == 0
        producer.produce(sent[2 * CHUNK :])
    finally:
        paused.process.send_signal(signal.SIGCONT)
    wait_count(database, len(sent))
    wait_until(lambda: paused.assigned | other.assigned == set(range(PARTITIONS)), "shared", guard_s=GUARD_S)
    writers.kill_all()
    check(database, place, sent)
