"""A consumer that keeps its offsets in its database: what it read and its new position, in one transaction.

The first line of its input is a JSON object: ``consumer``, the settings of confluent-kafka; ``topic``;
``database``, a connection string of PostgreSQL, or else the path of a SQLite file. It prints a JSON object,
``{"assigned": [partition, ..]}``, whenever it is assigned partitions, and runs until it is killed. Reading a
position may then wait for the transaction of a process that is paused.

A transaction moves a position only from where the reading began. So whatever another process has written
meanwhile, such as the one before this whose last commit was still under way, nothing is written twice: the
position is read again, and the consumer goes there.
"""

import json
import sqlite3
import sys
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

_RECORDS = 20  # of a transaction at most


class Table:
    """The table ``results`` in the order of writing, and for each partition its next offset."""

    def __init__(self, database: str) -> None:
        self._is_sqlite = "=" not in database
        if self._is_sqlite:
            self._connection: Any = sqlite3.connect(database, timeout=60, isolation_level=None)
        else:
            import psycopg

            self._connection = psycopg.connect(database, autocommit=True)

    def _run(self, statement: str, *values: object) -> Any:
        return self._connection.execute(
            statement if self._is_sqlite else statement.replace("?", "%s"), values
        )

    def position(self, partition: int) -> int:
        self._run("INSERT INTO positions VALUES (?, 0) ON CONFLICT DO NOTHING", partition)
        found: int = self._run("SELECT next FROM positions WHERE part = ?", partition).fetchone()[0]
        return found

    def write(self, partition: int, begin: int, messages: list[Message]) -> int | None:
        """The new position, or None if it is no longer ``begin``; nothing is written then."""
        after: int = messages[-1].offset() + 1
        self._run("BEGIN IMMEDIATE" if self._is_sqlite else "BEGIN")
        moved = self._run(
            "UPDATE positions SET next = ? WHERE part = ? AND next = ?", after, partition, begin
        )
        if moved.rowcount != 1:
            self._run("ROLLBACK")
            return None
        for message in messages:
            value = message.value().decode()
            self._run(
                "INSERT INTO results (part, place, value) VALUES (?, ?, ?)",
                partition,
                message.offset(),
                value,
            )
        self._run("COMMIT")
        return after


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    table, consumer, topic = Table(settings["database"]), Consumer(settings["consumer"]), settings["topic"]
    positions: dict[int, int] = {}

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        print(json.dumps({"assigned": sorted(one.partition for one in partitions)}), flush=True)
        positions.clear()
        positions.update((one.partition, table.position(one.partition)) for one in partitions)
        consumer.assign([TopicPartition(topic, part, offset) for part, offset in positions.items()])

    consumer.subscribe([topic], on_assign=assigned)
    while True:
        found: dict[int, list[Message]] = defaultdict(list)
        for message in consumer.consume(_RECORDS, 0.1):
            if message.error() is None:
                found[message.partition()].append(message)
        for partition, messages in found.items():
            if partition not in positions:  # it was revoked since
                continue
            after = table.write(partition, positions[partition], messages)
            if after is None:
                after = table.position(partition)
                consumer.seek(TopicPartition(topic, partition, after))
            positions[partition] = after


if __name__ == "__main__":
    main()
