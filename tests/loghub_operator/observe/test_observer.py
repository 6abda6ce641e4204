"""What an observation requests, and what a missing object becomes. The apiserver is a dict here."""

import asyncio
import base64
import builtins
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.clock import SystemClock
from loghub.contract.worker import WorkerStatus
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.fields import MAX_REPLICAS
from loghub_operator.api.status import Phase
from loghub_operator.clients.kube import CONFIG_MAP, SECRET, SERVICE, STATEFUL_SET, Kind, KubeError
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.observed import ObservedState, ServiceErrorReason, UnaddressedProject
from loghub_operator.resources import project_service
from loghub_operator.resources.metadata import metadata
from loghub_operator.settings import Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.availability import available, unavailable
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.wiring import observer_and_applier

Document = dict[str, Any]
KEYS = {"accessKeyId": "id", "accessKeySecret": "secret\n"}
NOTHING_REFUSED: Mapping[Kind, KubeError] = {}
FORBIDDEN = KubeError(403, "Forbidden", "not among the operator's rights")
WITHOUT_SERVICE = (UnaddressedProject(name="demo"),)
AWAY = KubeError(500, "InternalError", "etcd has no leader")


class Objects:
    """A read-only apiserver; ``refused`` kinds are answered with this error."""

    def __init__(
        self, *objects: tuple[Kind, str, str, Document], refused: Mapping[Kind, KubeError] = NOTHING_REFUSED
    ) -> None:
        self._objects = {(kind, namespace, name): value for kind, namespace, name, value in objects}
        self._refused = refused

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        if kind in self._refused:
            raise self._refused[kind]
        return self._objects.get((kind, namespace, name))

    async def list(self, *_: object) -> builtins.list[Document]:
        return []

    async def warnings(self, *_: object) -> builtins.list[Document]:
        return []


def secret(**keys: str) -> tuple[Kind, str, str, Document]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    return SECRET, "default", "loghub-credentials", {"data": data}


def observe(
    *objects: tuple[Kind, str, str, Document],
    endpoint: str = "http://127.0.0.1:1",
    refused: Mapping[Kind, KubeError] = NOTHING_REFUSED,
    given: LogHubConsumerGroup | None = None,
) -> ObservedState:
    requested: list[Credentials] = []
    server = MemoryServer()
    server.client("demo").create_project()
    server.client("demo").create_logstore("access", shards=1)

    def connect(_endpoint: str, project: str, credentials: Credentials) -> LogHub:
        requested.append(credentials)
        return server.client(project)

    async def run() -> ObservedState:
        pool = LogServicePool(connect)
        kube: Any = Objects(*objects, refused=refused)
        settings = Settings(embedded_endpoint=endpoint)
        observer, _ = observer_and_applier(kube, pool, settings=settings, clock=SystemClock())
        try:
            return await observer.observe(given or resource())
        finally:
            pool.close()

    observed = asyncio.run(run())
    observe.requested = requested  # type: ignore[attr-defined]
    return observed


def test_with_service_and_secret_the_shards_are_observed() -> None:
    observed = observe(secret(**KEYS))
    assert len(available(observed.service).shards) == 1
    # A key made from a file has a line's end, which is none of the key.
    assert observe.requested == [Credentials(access_key_id="id", access_key_secret="secret")]  # type: ignore[attr-defined]


def test_a_deletion_does_not_depend_on_what_would_be_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on the right to read it: code, addresses of projects, a reset."""

    def faulty(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("loghub_operator.resources.statefulset.worker_spec", faulty)
    code = {"sql": None, "python": {"function": "a:b", "configMap": {"name": "code"}}}
    spec = {"pipeline": code, "resetCheckpoints": {"to": "ConfigMap", "configMapName": "c", "nonce": "n"}}
    ending = resource(spec, deletionTimestamp="2026-09-21T14:13:20Z")
    refused = {CONFIG_MAP: FORBIDDEN, SERVICE: FORBIDDEN}
    observed = observe(secret(**KEYS), given=ending, refused=refused)
    assert (observed.reset, observed.unaddressed) == (None, ())
    assert plan(ending, observed, observed.at_unix_s).status.phase is Phase.TERMINATING
    assert len(available(observed.service).shards) == 1


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ((), "there is no Secret loghub-credentials in namespace default"),
        ((secret(accessKeyId="id"),), "has no accessKeySecret"),
        ((secret(accessKeyId="", accessKeySecret=""),), "has no accessKeyId and no accessKeySecret"),
    ],
)
def test_missing_keys_of_the_secret_are_named(objects: tuple[Any, ...], message: str) -> None:
    service = unavailable(observe(*objects).service)
    assert service.reason is ServiceErrorReason.CREDENTIALS_MISSING
    assert message in service.message


def test_a_forbidden_secret_is_reported() -> None:
    """Else the object would have no status, and could never be deleted: `rbac.secretNames` allows some."""
    service = unavailable(observe(secret(**KEYS), refused={SECRET: FORBIDDEN}).service)
    assert service.reason is ServiceErrorReason.CREDENTIALS_MISSING
    assert "no right to read Secret loghub-credentials in namespace default" in service.message


def test_a_forbidden_project_service_is_no_address() -> None:
    """Its creation is forbidden too, with a message that the status then shows."""
    observed = observe(secret(**KEYS), endpoint="http://loghub.svc", refused={SERVICE: FORBIDDEN})
    assert observed.unaddressed == WITHOUT_SERVICE


@pytest.mark.parametrize("kind", [SECRET, SERVICE], ids=lambda kind: str(kind.kind))
def test_an_unreachable_apiserver_fails_the_observation(kind: Kind) -> None:
    with pytest.raises(KubeError, match="etcd has no leader"):
        observe(secret(**KEYS), endpoint="http://loghub.svc", refused={kind: AWAY})


def test_the_group_is_observed_before_the_project_has_a_host_name() -> None:
    observed = observe(secret(**KEYS), endpoint="http://loghub.svc")
    assert observed.placement.needs_project_address
    assert observed.unaddressed == WITHOUT_SERVICE
    assert len(available(observed.service).shards) == 1


def test_a_project_service_with_another_selector_is_no_address() -> None:
    ours = project_service("demo", "loghub")
    named = (SERVICE, "loghub", "demo", ours)
    assert observe(secret(**KEYS), named, endpoint="http://loghub.svc").unaddressed == ()
    other = (SERVICE, "loghub", "demo", {**ours, "spec": {"selector": {"app": "other"}}})
    assert observe(secret(**KEYS), other, endpoint="http://loghub.svc").unaddressed == WITHOUT_SERVICE


def test_a_project_service_of_ours_with_another_port_is_no_address() -> None:
    """The endpoint has become https, for example. A Service that a user made may have any port."""
    ours = project_service("demo", "loghub", port=80)
    given = (SERVICE, "loghub", "demo", ours)
    assert observe(secret(**KEYS), given, endpoint="http://loghub.svc").unaddressed == ()
    assert observe(secret(**KEYS), given, endpoint="https://loghub.svc").unaddressed == WITHOUT_SERVICE
    ours["metadata"]["labels"] = {}
    assert observe(secret(**KEYS), given, endpoint="https://loghub.svc").unaddressed == ()


@pytest.mark.parametrize(
    ("endpoint", "namespace"),
    [
        ("http://loghub.svc", "loghub"),
        ("http://logs-2.svc", "logs-2"),
        ("http://127.0.0.1:8080", None),
        ("https://cn-hangzhou.log.aliyuncs.com", None),
        ("http://demo.loghub.svc", None),
    ],
)
def test_the_namespace_of_the_project_services_follows_from_the_endpoint(
    endpoint: str, namespace: str | None
) -> None:
    assert Settings(embedded_endpoint=endpoint).project_namespace == namespace


@pytest.mark.parametrize(
    ("status", "observed"),
    [({}, False), ({"observedGeneration": 1}, False), ({"observedGeneration": 2}, True)],
)
def test_a_stateful_set_has_observed_a_change_once_its_status_says_so(
    status: Document, observed: bool
) -> None:
    owner = resource(uid="uid-1")
    existing: Document = {
        "kind": "StatefulSet",
        "metadata": {**metadata(owner, "access"), "generation": 2},
        "spec": {"replicas": 1},
        "status": status,
    }
    worker_set = observe(secret(**KEYS), (STATEFUL_SET, "default", "access", existing)).worker_set
    assert worker_set is not None
    assert worker_set.observed is observed


@pytest.mark.parametrize("replicas", [MAX_REPLICAS, 50 * MAX_REPLICAS])
def test_no_more_consumers_are_expected_than_an_object_may_have(
    replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who may scale a StatefulSet can ask for two thousand million pods."""
    expected: list[int] = []

    async def read(_: object, names: Collection[str]) -> dict[str, WorkerStatus | None]:
        expected.append(len(names))
        return {}

    monkeypatch.setattr("loghub_operator.observe.observer.statuses_of", read)
    scaled = {"metadata": metadata(resource(), "access"), "spec": {"replicas": replicas}}
    observed = observe(secret(**KEYS), (STATEFUL_SET, "default", "access", scaled))
    assert observed.replicas == replicas
    assert expected == [MAX_REPLICAS]
