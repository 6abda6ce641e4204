"""An administrator whose connection ends in the middle of a change: it is carried out whole.

A connection that ends cancels its requests. Each change is cancelled at each step of storage that it takes,
and memory is compared with what the database says, which is what the next start takes over.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from loghub_service.catalog import Catalog
from loghub_service.engine import Engine
from loghub_service.kafka.broker.store import BrokerLogin, NewTopic
from loghub_service.kafka.store.log_service import EngineLogService
from tests.loghub_service.kafka.broker.broker_place import KEY, PROJECT, Place, run

Change = Callable[[BrokerLogin, str], Coroutine[object, object, None]]
STEPS = 5  # of storage, more than any of the changes takes
STORAGE = ("_log_batches", "_fact_batches", "_file_batches")
CHANGES: dict[str, Change] = {
    "create": lambda login, name: login.create_topic(topic(f"{name}-new"), check_only=False),
    "delete": lambda login, name: login.delete_topic(name),
    "grow": lambda login, name: login.add_partitions(name, 4, check_only=False),
}


def topic(name: str) -> NewTopic:
    return NewTopic(name=name, partitions=2, retention_ms=None, form=None)


class CancelsAtStep:
    """Storage that cancels a task when something is submitted for the ``left``-th time."""

    def __init__(self, engine: Engine, task: "asyncio.Task[None]", left: int) -> None:
        self.left = left
        for name in STORAGE:
            self._watch(engine, name, task)

    def _watch(self, engine: Engine, name: str, task: "asyncio.Task[None]") -> None:
        submit = getattr(engine, name).submit

        def counted(item: object) -> "asyncio.Future[object]":
            self.left -= 1
            if self.left == 0:
                task.cancel()
            return submit(item)  # type: ignore[no-any-return]

        getattr(engine, name).submit = counted


def on_disk(engine: Engine) -> Catalog:
    found = Catalog()
    for fact in engine._database.catalog_facts():
        found.apply(fact)
    return found


def facts_of(catalog: Catalog) -> dict[str, tuple[object, ...]]:
    stores = catalog.logstores_by_id.values()
    return {store.saved.name: (store.saved, *store.shards.values()) for store in stores}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_cancelled_at_any_step_leaves_memory_as_the_disk(tmp_path: Path, name: str) -> None:
    cancelled = []

    async def scenario(place: Place) -> None:
        engine = place.engine
        login = EngineLogService(engine, place.keys.get).login(PROJECT, f"{KEY.key_id}#{KEY.secret}")
        assert login is not None
        submits = {one: getattr(engine, one).submit for one in STORAGE}
        for step in range(1, STEPS + 1):
            await login.create_topic(topic(f"topic{step}"), check_only=False)
            change = asyncio.create_task(CHANGES[name](login, f"topic{step}"))
            storage = CancelsAtStep(engine, change, step)
            await asyncio.wait((change,))
            cancelled.append(change.cancelled())
            assert change.cancelled() == (storage.left <= 0)
            for one, submit in submits.items():
                getattr(engine, one).submit = submit
            await login.create_topic(topic(f"next{step}"), check_only=False)  # after what goes on
            stored = on_disk(engine)
            assert facts_of(stored) == facts_of(engine.catalog)
            assert set(engine.logs) == {
                (store.saved.id, shard) for store in stored.logstores_by_id.values() for shard in store.shards
            }
            assert not engine.sealing

    run(scenario, tmp_path / "d")
    assert cancelled[0]
    assert not cancelled[-1]
