"""From a new object to its StatefulSet: one reconcile, with few sequential calls."""

import asyncio
import builtins
import copy
from collections.abc import Callable
from typing import Any

from loghub.clock import SystemClock
from loghub_operator.api import parse_resource
from loghub_operator.api.adoption import GroupRecord, read_record
from loghub_operator.api.labels import FINALIZER
from loghub_operator.clients.kube import CONSUMER_GROUP, KINDS, SECRET, STATEFUL_SET, Kind
from loghub_operator.controller.reconciler import Intervals, Reconciler
from loghub_operator.controller.workqueue import Key
from loghub_operator.settings import STATUS_INTERVAL_S, Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import Document, document, merge
from tests.loghub_operator.support.observing import one_by_one
from tests.loghub_operator.support.wiring import observer_and_applier

KEY = Key("default", "access")
# The object; all that is observed; its origin; the key to create its group; a read and a write
# for the dependencies of the StatefulSet, and for itself.
MAX_TURNS = 8
GUARD_TURNS = 100


class Turns:
    """An apiserver that answers in turns: concurrent requests are answered together."""

    def __init__(self) -> None:
        secret = {
            "metadata": {"name": "loghub-credentials"},
            "data": {"accessKeyId": "eA==", "accessKeySecret": "eA=="},
        }
        group = document(uid="uid-1", generation=1)
        self.objects: dict[tuple[Kind, str], Document] = {
            (SECRET, "loghub-credentials"): secret,
            (CONSUMER_GROUP, "access"): group,
        }
        self.reversals = self.gets_of_the_object = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def turn(self) -> None:
        """Answers all requests; then waits until every task needs another answer."""
        self.reversals += bool(self._waiting)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set_result(None)
        for _ in range(100):
            await asyncio.sleep(0)

    async def _answered(self) -> None:
        one = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        await one

    async def get(self, kind: Kind, _: str, name: str) -> Document | None:
        self.gets_of_the_object += kind is CONSUMER_GROUP
        await self._answered()
        return copy.deepcopy(self.objects.get((kind, name)))

    async def list(self, *_: object) -> builtins.list[Document]:
        await self._answered()
        return []

    async def warnings(self, *_: object) -> builtins.list[Document]:
        return []

    async def create(self, given: Document) -> Document:
        await self._answered()
        return given

    async def apply(self, given: Document, *, subresource: str = "") -> Document:
        await self._answered()
        stored = self.objects.setdefault((KINDS[given["kind"]], given["metadata"]["name"]), {})
        merge(stored, {"status": given["status"]} if subresource else given)
        stored["metadata"]["resourceVersion"] = str(self.reversals)
        return copy.deepcopy(stored)


class Clients:
    """The log service answers at once; ``on_create`` is called when the group is created."""

    def __init__(self, on_create: Callable[[], None]) -> None:
        self._client = MemoryServer().client("demo")
        self._client.create_project()
        self._client.create_logstore("access", shards=2)
        self._on_create = on_create

    def client(self, *_: object) -> "Clients":
        return self

    run_all = staticmethod(one_by_one)

    async def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    def create_group(self, *arguments: Any) -> None:
        self._on_create()
        self._client.create_group(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def begin() -> tuple[Turns, list[Document]]:
    """Turns until the StatefulSet exists, and the object as it was when its group was created."""
    kube, objects = Turns(), []
    clients: Any = Clients(lambda: objects.append(copy.deepcopy(kube.objects[CONSUMER_GROUP, "access"])))
    settings, clock = Settings(embedded_endpoint="http://127.0.0.1:1"), SystemClock()
    api: Any = kube
    observer, applier = observer_and_applier(api, clients, settings=settings, clock=clock)
    reconciler = Reconciler(
        kube=api,
        observer=observer,
        applier=applier,
        clock=clock,
        intervals=Intervals(resync_s=3600.0, numbers_every_s=STATUS_INTERVAL_S),
    )

    async def run() -> None:
        reconciler.enqueue(KEY)
        for _ in range(GUARD_TURNS):
            await kube.turn()
            if (STATEFUL_SET, "access") in kube.objects:
                break
        await reconciler.close()

    asyncio.run(run())
    return kube, objects


def test_the_first_reconcile_needs_few_sequential_calls() -> None:
    kube, _ = begin()
    assert (STATEFUL_SET, "access") in kube.objects
    assert kube.gets_of_the_object == 1
    assert kube.reversals <= MAX_TURNS


def test_finalizer_and_origin_are_written_before_the_group_is_created() -> None:
    _, (at_creation,) = begin()
    assert at_creation["metadata"]["finalizers"] == [FINALIZER]
    assert read_record(parse_resource(at_creation)) == GroupRecord("Created", 1)
