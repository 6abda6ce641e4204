"""Services of projects that nobody uses any more are removed, and no others."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.clock import SystemClock
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError
from loghub_operator.api.labels import OUR_SERVICES
from loghub_operator.clients.kube import SERVICE, Document, Kind
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.controller.project_services import MAX_ASKED, ProjectServices
from loghub_operator.logservice.access import MAX_KEYS, LogServiceAccess
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.resources import governing_service, project_service
from loghub_operator.settings import Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.examples import document, merge, resource

SETTINGS = Settings(embedded_endpoint="http://loghub.svc")
SINK = {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy", "project": "of-the-sink"}}}}
REJECTED = {
    "pipeline": {
        "onFailure": {
            "policy": "DeadLetter",
            "deadLetter": {"logstore": {"name": "rejected", "project": "of-the-dead-letter"}},
        }
    }
}


class Cluster:
    """Has Services, and deletes them if their UID is right."""

    def __init__(self, *projects: str) -> None:
        self.services: dict[str, Document] = {}
        for name in projects:
            self.add(project_service(name, "loghub"))

    def add(self, service: Document) -> None:
        service["metadata"]["uid"] = f"uid-{service['metadata']['name']}"
        self.services[service["metadata"]["name"]] = service

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> list[Document]:
        assert (kind, namespace) == (SERVICE, "loghub")
        return [one for one in self.services.values() if labels.items() <= one["metadata"]["labels"].items()]

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str = "") -> bool:
        assert (kind, namespace, uid) == (SERVICE, "loghub", f"uid-{name}")
        return self.services.pop(name, None) is not None


class World:
    """An operator whose objects use ``keys``, one object for each key; `LIMITED` has rights in demo only."""

    def __init__(self, cluster: Cluster, existing: tuple[str, ...] = ("demo",), keys: int = 1) -> None:
        self.cluster = cluster
        self.asked: list[tuple[str, str]] = []
        self.away = False
        self.limited: set[str] = set()
        server = MemoryServer()
        for name in existing:
            server.client(name).create_project()
        server.client("demo").create_logstore("access", shards=1)

        def connect(endpoint: str, project: str, key: Credentials) -> LogHub:
            assert endpoint == "http://loghub.svc"
            client: Any = server.client(project)
            return Asking(self, client, project, key)  # type: ignore[return-value]

        self.pool = LogServicePool(connect)
        self.index = GroupIndex(SETTINGS)
        self.access = LogServiceAccess(
            pool=self.pool,
            endpoint=lambda given: SETTINGS.endpoint(given.spec.endpoint),
            credentials=self._credentials,
            clock=SystemClock(),
        )
        api: Any = cluster
        self.services = ProjectServices(
            kube=api,
            log_service=self.access,
            group_index=self.index,
            namespace="loghub",
            endpoint=SETTINGS.embedded_endpoint,
        )
        for number in range(keys):
            self.accepted(number)

    async def _credentials(self, given: Any) -> Credentials:
        return Credentials(access_key_id=given.metadata.uid, access_key_secret="x")

    def accepted(self, number: int) -> None:
        """The log service accepts the key of another object."""
        self.name(f"group-{number}", {})

        async def observe() -> None:
            given = resource(uid=f"group-{number}")
            client = self.access.client_or_reason(given, await self.access.credentials_or_reason(given))
            await self.access.observe(given, client, lambda _: pytest.fail("not asked"))

        asyncio.run(observe())
        self.asked.clear()

    def name(self, name: str, spec: Document) -> None:
        given = document({}, uid=name)
        merge(given["spec"], spec)
        given["metadata"]["name"] = name
        given["metadata"].setdefault("namespace", "default")
        self.index.update(given)

    def round(self) -> list[str]:
        asyncio.run(self.services.remove_abandoned())
        return sorted(self.cluster.services)


class Asking:
    """A client that counts what is asked, and has no rights with a limited key."""

    def __init__(self, world: World, client: Any, project: str, key: Credentials) -> None:
        self._world, self._client, self._project, self._key = world, client, project, key.access_key_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def project_exists(self) -> bool:
        self._world.asked.append((self._project, self._key))
        if self._world.away:
            raise EndpointUnreachable("http://loghub.svc", "away", definite=True)
        if self._key in self._world.limited:
            raise LogHubError(Code.UNAUTHORIZED, 401, "no rights in this project")
        return bool(self._client.project_exists())


def test_a_service_without_object_and_project_is_removed() -> None:
    world = World(Cluster("demo", "gone", "used-by-producers"), existing=("demo", "used-by-producers"))
    assert world.round() == ["demo", "used-by-producers"]


@pytest.mark.parametrize(
    ("spec", "project"),
    [({"project": "named"}, "named"), (SINK, "of-the-sink"), (REJECTED, "of-the-dead-letter")],
    ids=["project", "sink", "dead-letter"],
)
def test_a_service_whose_project_an_object_names_stays(spec: Document, project: str) -> None:
    world = World(Cluster(project))
    world.name("other", spec)
    assert world.round() == [project]
    assert world.asked == []
    world.index.remove("default", "other", "other")
    assert world.round() == []


def test_a_service_that_the_operator_did_not_make_for_a_project_stays() -> None:
    cluster = Cluster("gone")
    for service in (project_service("made-by-a-user", "loghub"), governing_service(resource())):
        service["metadata"]["namespace"] = "loghub"
        cluster.add(service)
    cluster.services["made-by-a-user"]["metadata"]["labels"] = {"loghub.dev/project": "made-by-a-user"}
    assert OUR_SERVICES.items() <= cluster.services["access-workers"]["metadata"]["labels"].items()
    assert World(cluster).round() == ["access-workers", "made-by-a-user"]


def test_without_an_answer_of_the_log_service_nothing_is_removed() -> None:
    assert World(Cluster("gone"), keys=0).round() == ["gone"]
    world = World(Cluster("gone", "lost"))
    world.away = True
    assert world.round() == ["gone", "lost"]
    assert len(world.asked) == 1


def test_a_key_without_rights_in_the_project_proves_nothing_and_the_next_one_is_asked() -> None:
    world = World(Cluster("gone"), keys=2)
    world.limited = {"group-0", "group-1"}
    assert world.round() == ["gone"]
    world.limited = {"group-0"}
    assert world.round() == []
    many = World(Cluster("gone"), keys=MAX_KEYS + 1)
    many.limited = {f"group-{number}" for number in range(MAX_KEYS + 1)}
    many.round()
    assert len(many.asked) == MAX_KEYS


def test_a_round_asks_for_a_limited_number_of_projects() -> None:
    projects = [f"p{number:04}" for number in range(MAX_ASKED + 1)]
    world = World(Cluster(*projects))
    assert world.round() == projects[-1:]
    assert world.round() == []
