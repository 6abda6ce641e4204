"""Pulls that are in flight."""

import itertools
import threading
from typing import Any

import pytest

from loghub.client.port import Credentials, PackedPull, Pulled
from loghub_consumer.held_shard import Pull
from loghub_consumer.program_parts import own_parts
from loghub_consumer.puller import Puller
from loghub_consumer.settings import ConsumerSettings
from tests.support import wait_until


class DueTable:
    """A pull is due for one shard after the other, until it is stopped."""

    def __init__(self) -> None:
        self.answers = 0
        self._shards = itertools.count()
        self._stopped = threading.Event()

    def call_on_pull(self, on_pull: object) -> None: ...

    def begin_pull(self) -> tuple[None, Pull] | None:
        if self._stopped.is_set():
            return None
        return None, Pull(shard=next(self._shards), generation=0, cursor=0, count=1, bytes=1)

    def stop_pulls(self) -> None:
        self._stopped.set()

    def receive(self, *_: object, interval_s: float) -> None:
        self.answers += 1


class SlowClient:
    """Answers no pull before the test allows it."""

    def __init__(self) -> None:
        self.in_flight: list[int] = []
        self.may_answer = threading.Event()

    def pull_packed(
        self, logstore: str, shard: int, *, cursor: str, count: int, query: str | None
    ) -> PackedPull:
        self.in_flight.append(shard)
        self.may_answer.wait(60)
        return PackedPull.of(Pulled(body=b"", count=0, next_cursor=cursor, end_of_shard=True))


@pytest.mark.parametrize("pulls", [1, 3])
def test_as_many_pulls_as_the_settings_say_are_in_flight(pulls: int) -> None:
    settings = ConsumerSettings(
        endpoint="http://loghub",
        project="demo",
        logstore="access",
        consumer_group="readers",
        consumer="c-0",
        credentials=Credentials(access_key_id="id", access_key_secret="secret"),
        max_pulls=pulls,
    )
    table: Any = DueTable()
    client: Any = SlowClient()
    puller = Puller(table, client, settings, own_parts(settings.max_buffered_bytes))
    puller.start()
    try:
        wait_until(lambda: len(client.in_flight) >= pulls, "the pulls")
        assert len(client.in_flight) == pulls
    finally:
        puller.stop()
        client.may_answer.set()
    wait_until(lambda: table.answers == pulls, "the answers")
