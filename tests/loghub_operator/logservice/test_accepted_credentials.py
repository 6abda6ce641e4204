"""A deletion uses the last access key that the log service accepted, if the Secret was deleted first."""

import asyncio
from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.clock import SystemClock
from loghub.wire.errors import Code, LogHubError
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.access import (
    MAX_OBJECTS,
    AcceptedCredentials,
    LogServiceAccess,
    LogServiceUnavailable,
)
from loghub_operator.model.actions import DeleteGroup
from loghub_operator.model.observed import Available, LogServiceObserved, ServiceErrorReason, Unavailable
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import resource

GOOD, BAD = (Credentials(access_key_id=name, access_key_secret="x") for name in ("good", "bad"))
ALIVE = resource(uid="uid-1")
DELETED = resource(uid="uid-1", deletionTimestamp="2026-09-21T14:13:20Z")


class World:
    """A log service that accepts one key, and a Secret with a key or none."""

    def __init__(self) -> None:
        self.secret: Credentials | None = GOOD
        server = MemoryServer()
        server.client("demo").create_project()
        server.client("demo").create_logstore("access", shards=1)

        def connect(_: str, project: str, key: Credentials) -> LogHub:
            client: Any = server.client(project)
            return client if key == GOOD else _Refusing()

        self.pool = LogServicePool(connect)
        self.access = self.started()

    def started(self) -> LogServiceAccess:
        return LogServiceAccess(
            pool=self.pool, endpoint=lambda _: "http://x", credentials=self._credentials, clock=SystemClock()
        )

    async def _credentials(self, _: object) -> Credentials:
        if self.secret is None:
            why = Unavailable(reason=ServiceErrorReason.CREDENTIALS_MISSING, message="there is no Secret")
            raise LogServiceUnavailable(why)
        return self.secret

    def observe(self, given: Any) -> LogServiceObserved:
        async def run() -> LogServiceObserved:
            client = self.access.client_or_reason(given, await self.access.credentials_or_reason(given))
            return await self.access.observe(given, client, lambda _: pytest.fail("not asked"))

        return asyncio.run(run())


class _Refusing:
    def close(self) -> None:
        pass

    def has_extensions(self) -> bool:
        raise LogHubError(Code.UNAUTHORIZED, 401, "not allowed")


@pytest.fixture
def world() -> Any:
    result = World()
    yield result
    result.pool.close()


def test_a_deletion_goes_on_without_the_secret(world: World) -> None:
    assert isinstance(world.observe(ALIVE), Available)
    world.secret = None
    assert isinstance(world.observe(DELETED), Available)
    asyncio.run(world.access.change_group(DELETED, DeleteGroup()))


def test_without_a_deletion_a_missing_secret_is_reported(world: World) -> None:
    assert isinstance(world.observe(ALIVE), Available)
    world.secret = None
    assert isinstance(world.observe(ALIVE), Unavailable)


def test_a_rejected_key_does_not_replace_an_accepted_one(world: World) -> None:
    world.observe(ALIVE)
    world.secret = BAD
    assert isinstance(world.observe(ALIVE), Unavailable)
    world.secret = None
    assert isinstance(world.observe(DELETED), Available)


@pytest.mark.parametrize("cause", ["another object", "released", "restarted"])
def test_no_other_key_is_used(world: World, cause: str) -> None:
    world.observe(ALIVE)
    world.secret, deleted = None, DELETED
    match cause:
        case "another object":
            deleted = resource(uid="uid-2", deletionTimestamp="2026-09-21T14:13:20Z")
        case "released":
            world.access.forget(DELETED)
        case "restarted":
            world.access = world.started()
    assert isinstance(world.observe(deleted), Unavailable)


def test_the_number_of_remembered_keys_is_bounded() -> None:
    known = AcceptedCredentials()
    for number in range(MAX_OBJECTS + 1):
        known.trying(str(number), GOOD)
        known.accepted(str(number))
    assert (known.last("0"), known.last("1")) == (None, GOOD)
