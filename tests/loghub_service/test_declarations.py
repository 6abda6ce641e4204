"""Schemas of a topic have versions, and are bounded; both they and epochs go with their logstore."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from loghub_service.declarations import (
    MAX_BYTES,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMAS,
    Declarations,
    TooManySchemas,
)
from loghub_service.facts import ProducerEpochSaved, SchemaSaved


def on_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


class Disk:
    """Persists at once, or when `done` is set."""

    def __init__(self) -> None:
        self.facts: list[object] = []
        self.waiting: list[asyncio.Future[object]] = []
        self.is_slow = False

    def submit(self, *facts: object) -> "asyncio.Future[object]":
        self.facts += facts
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.is_slow:
            self.waiting.append(future)
        else:
            future.set_result(None)
        return future


def test_a_schema_that_is_declared_again_keeps_its_version() -> None:
    async def scenario() -> None:
        disk = Disk()
        declarations = Declarations(disk.submit, {1, 2})
        assert declarations.schema(1) is None
        assert [await declarations.declare(1, schema) for schema in (b"a", b"b", b"a")] == [0, 1, 0]
        assert await declarations.declare(2, b"b") == 0
        assert disk.facts == [
            SchemaSaved(logstore=1, version=0, schema=b"a"),
            SchemaSaved(logstore=1, version=1, schema=b"b"),
            SchemaSaved(logstore=2, version=0, schema=b"b"),
        ]
        assert (declarations.schema(1), declarations.schema(1, 0)) == ((1, b"b"), (0, b"a"))
        assert declarations.schema(1, 2) is declarations.schema(1, -1) is None
        again = Declarations(disk.submit, {1, 2})
        again.restore([fact for fact in disk.facts if isinstance(fact, SchemaSaved)], ())
        assert (again.schema(1), await again.declare(1, b"b")) == ((1, b"b"), 1)

    on_loop(scenario)


def test_a_client_that_declares_a_schema_meanwhile_waits_until_it_is_durable() -> None:
    async def scenario() -> None:
        disk = Disk()
        disk.is_slow = True
        declarations = Declarations(disk.submit, {1})
        both = [asyncio.create_task(declarations.declare(1, b"a")) for _ in range(2)]
        await asyncio.sleep(0)
        assert (len(disk.waiting), [task.done() for task in both]) == (1, [False, False])
        disk.waiting[0].set_result(None)
        assert await asyncio.gather(*both) == [0, 0]

    on_loop(scenario)


def test_schemas_are_bounded_by_number_and_size() -> None:
    async def scenario() -> None:
        declarations = Declarations(Disk().submit, {1, 2})
        with pytest.raises(TooManySchemas, match="a schema of"):
            await declarations.declare(1, bytes(MAX_SCHEMA_BYTES + 1))
        for number in range(MAX_SCHEMAS):
            await declarations.declare(1, b"%d" % number)
        with pytest.raises(TooManySchemas, match=f"has {MAX_SCHEMAS} schemas"):
            await declarations.declare(1, b"one more")
        assert await declarations.declare(1, b"7") == 7
        for number in range(MAX_BYTES // MAX_SCHEMA_BYTES):
            await declarations.declare(2, bytes(MAX_SCHEMA_BYTES - 1) + bytes((number,)))
        with pytest.raises(TooManySchemas):
            await declarations.declare(2, b"x")

    on_loop(scenario)


def test_what_was_declared_goes_with_its_logstore() -> None:
    async def scenario() -> None:
        existing, disk = {1, 2}, Disk()
        declarations = Declarations(disk.submit, existing)
        await declarations.declare(1, b"a")
        declarations.save_epoch(1, 0, 5)
        existing.remove(1)
        declarations.save_epoch(2, 3, 6)
        assert (declarations.schema(1), declarations.epoch(1, 0), declarations.epoch(2, 3)) == (None, None, 6)
        again = Declarations(disk.submit, existing)
        again.restore((), [ProducerEpochSaved(logstore=2, partition=3, epoch=6)])
        assert (again.epoch(2, 3), again.epoch(2, 4)) == (6, None)

    on_loop(scenario)
