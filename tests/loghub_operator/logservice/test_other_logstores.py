"""What an observation reads of the retry logstore and of the dead letter, at a log service in memory."""

import asyncio
from typing import Any

import pytest

from loghub.client.port import Credentials, GroupInfo
from loghub.contract.processor import retry_group
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.access import DEAD_LETTER_EVERY_S, LogServiceAccess
from loghub_operator.logservice.other_logstores import BOUND_S, read_retries
from loghub_operator.logservice.shard_cursors import CursorCache
from loghub_operator.model.observed import Available, OtherLogstore
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import resource
from tests.support import HandClock

ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))
WAITS = "again"
GROUP = retry_group("access", "access")
FAILS: dict[str, Any] = {
    "pipeline": {
        "sql": None,
        "sink": None,
        "processor": {"factory": "a:b", "retryLogstore": {"name": WAITS}},
        "onFailure": {
            "policy": "DeadLetter",
            "deadLetter": {"logstore": {"project": "elsewhere", "name": "rejected"}},
        },
    }
}


class World:
    """Two projects, and an operator's access to them."""

    def __init__(self) -> None:
        self.clock = HandClock(1_000_000.0)
        self.server = MemoryServer(self.clock)
        self.here, self.elsewhere = self.server.client("demo"), self.server.client("elsewhere")
        for client, logstore in ((self.here, "access"), (self.here, WAITS), (self.elsewhere, "rejected")):
            if not client.project_exists():
                client.create_project()
            client.create_logstore(logstore, shards=2)
        self.call_s = 0.0
        pool = LogServicePool(lambda _, project, __: _Slow(self, self.server.client(project)))
        key = Credentials(access_key_id="id", access_key_secret="key")

        async def credentials(_: object) -> Credentials:
            return key

        self.access = LogServiceAccess(
            pool=pool, endpoint=lambda _: "http://x", credentials=credentials, clock=self.clock
        )

    def observe(
        self, spec: dict[str, Any] | None = None, *, after_s: float = 400.0, **metadata: Any
    ) -> Available:
        """By default after so long that nothing is known from before."""

        async def run() -> Any:
            given = resource(FAILS if spec is None else spec, uid="1", **metadata)
            client = self.access.client_or_reason(given, await self.access.credentials_or_reason(given))
            return await self.access.observe(given, client, lambda _: pytest.fail("not asked"))

        self.clock.now += after_s
        found = asyncio.run(run())
        assert isinstance(found, Available)
        return found

    def write(self, client: Any, logstore: str, *, shard: int = 0, times: int = 1) -> None:
        key = client.list_shards(logstore)[shard].begin_key
        for _ in range(times):
            client.put_logs(logstore, ONE, hash_key=key)

    def save(self, shard: int, cursor: int) -> None:
        text = wire_cursor.encode(cursor)
        self.here.update_checkpoint(WAITS, GROUP, shard=shard, cursor=text, consumer="access-0", force=True)


class _Slow:
    def __init__(self, world: World, client: Any) -> None:
        self._world, self._client = world, client

    def get_cursor(self, logstore: str, *which: Any) -> str:
        if logstore != "access":
            self._world.clock.now += self._world.call_s
        return str(self._client.get_cursor(logstore, *which))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def held(log_groups: int) -> OtherLogstore:
    return OtherLogstore(log_groups=log_groups)


def test_what_waits_and_what_was_rejected_is_counted() -> None:
    world = World()
    assert (world.observe().retries, world.observe().dead_letter) == (held(0), held(0))
    world.write(world.here, WAITS, times=3)
    world.write(world.here, WAITS, shard=1, times=2)
    world.write(world.elsewhere, "rejected", times=4)
    assert world.observe().retries == held(5), "its group, which nobody has created yet, begins at the oldest"
    world.here.create_group(WAITS, GroupInfo(name=GROUP, timeout_s=30, order=False))
    assert world.observe().retries == held(5), "no consumer has saved a checkpoint"
    begin = wire_cursor.decode(world.here.get_cursor(WAITS, 0, "begin"))
    world.save(0, begin + 2)
    found = world.observe()
    assert (found.retries, found.dead_letter) == (held(3), held(4))
    world.save(0, begin + 3)
    world.save(1, wire_cursor.decode(world.here.get_cursor(WAITS, 1, "end")))
    assert world.observe().retries == held(0)


def test_what_waits_for_a_subscription_is_counted_in_its_own_group() -> None:
    """A group of the same name for the same logstore has another one in the retry logstore."""
    world = World()
    world.write(world.here, WAITS, times=3)
    for is_subscription, left in ((False, 0), (True, 2)):
        name = retry_group("access", "access", is_subscription=is_subscription)
        world.here.create_group(WAITS, GroupInfo(name=name, timeout_s=30, order=False))
        end = wire_cursor.decode(world.here.get_cursor(WAITS, 0, "end")) - left
        text = wire_cursor.encode(end)
        world.here.update_checkpoint(WAITS, name, shard=0, cursor=text, consumer="access-0", force=True)
    processor = FAILS["pipeline"]["processor"] | {"acknowledge": "Log"}
    shared = {"pipeline": FAILS["pipeline"] | {"processor": processor}, "subscription": {"type": "Shared"}}
    for given, left in ((FAILS, 0), (shared, 2)):
        found = read_retries(
            world.here,
            resource(given),
            ("http://x", "demo", WAITS),
            cache=CursorCache(world.clock),
            run_all=lambda work, _: work(),
            clock=world.clock,
        )
        assert found == held(left)


def test_a_group_that_has_no_such_logstore_is_not_asked_about_one() -> None:
    world = World()
    found = world.observe({})
    assert (found.retries, found.dead_letter, found.retry_groups) == (None, None, 0)
    folder = {"policy": "DeadLetter", "deadLetter": {"folder": {"path": "x", "volumeClaim": "y"}}}
    assert world.observe({"pipeline": {"onFailure": folder}}).dead_letter is None
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["loghub.dev/consumer-group"]}
    assert world.observe(**leaving).retries is None


def test_a_logstore_that_cannot_be_read_is_unknown_and_named() -> None:
    world = World()
    world.here.delete_logstore(WAITS)
    found = world.observe()
    assert found.retries is not None
    assert (found.retries.log_groups, found.retry_groups) == (None, None)
    assert found.retries.error.startswith(f"retry logstore {WAITS}: LogStoreNotExist, HTTP 404")
    assert found.dead_letter == held(0)


def test_a_slow_answer_delays_the_reconcile_by_its_bound_only() -> None:
    world = World()
    world.write(world.here, WAITS)
    world.call_s = 2 * BOUND_S
    found = world.observe()
    assert found.retries is not None
    assert found.retries.log_groups is None
    assert "were not returned within 10 s" in found.retries.error


def test_a_dead_letter_is_counted_once_a_minute_and_retries_each_time() -> None:
    world = World()
    world.observe()
    for client, logstore in ((world.here, WAITS), (world.elsewhere, "rejected")):
        world.write(client, logstore)
    found = world.observe(after_s=DEAD_LETTER_EVERY_S - 1.0)
    assert (found.retries, found.dead_letter) == (held(1), held(0))
    assert world.observe(after_s=1.0).dead_letter == held(1)
