"""The Services of projects: which names are refused, and that only a project that exists gets one."""

import asyncio
import dataclasses
import re
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub_operator.clients.kube import SECRET, SERVICE, Document, Kind, KubeError
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.actions import ActionRefused, EnsureProjectService
from loghub_operator.model.observed import GroupSettings, ObservedState
from loghub_operator.resources import project_service
from loghub_operator.settings import LeaseRef, Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.wiring import observer_and_applier

SETTINGS = Settings(
    embedded_endpoint="http://loghub.svc", lease=LeaseRef(namespace="loghub", name="release-loghub")
)
COPY: Document = {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy", "project": "backup"}}}}
SAME = {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}}
REJECTED: Document = {
    "pipeline": {
        "onFailure": {
            "policy": "DeadLetter",
            "deadLetter": {"logstore": {"name": "access", "project": "rejected"}},
        }
    }
}
REFUSED = KubeError(422, "Invalid", "a DNS-1035 label must begin with a letter")


class Cluster:
    """Has the Secret and the Services of these projects; refuses what is no DNS label of RFC 1035."""

    def __init__(self, *projects: str) -> None:
        self.services = {name: project_service(name, "loghub") for name in projects}
        self.keys = {"accessKeyId": "eA==", "accessKeySecret": "eA=="}

    async def get(self, kind: Kind, _: str, name: str) -> Document | None:
        if kind is SECRET:
            return {"data": self.keys}
        return self.services.get(name) if kind is SERVICE else None

    async def list(self, kind: Kind, *_: object) -> list[Document]:
        return list(self.services.values()) if kind is SERVICE else []

    async def apply(self, given: Document) -> Document:
        name = given["metadata"]["name"]
        if re.fullmatch("[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name) is None:
            raise REFUSED
        self.services[name] = given
        return given


def ensure(cluster: Cluster, project: str, settings: Settings = SETTINGS) -> None:
    pool = LogServicePool(lambda *_: pytest.fail("no log service is asked"))
    api: Any = cluster
    _, applier = observer_and_applier(api, pool, settings=settings, clock=SystemClock())
    asyncio.run(applier.carry_out(resource(), EnsureProjectService(project)))
    pool.close()


@pytest.mark.parametrize("project", ["release-loghub", "release-loghub-keda", "loghub-service"])
def test_a_name_that_the_chart_may_need_is_refused(project: str) -> None:
    cluster = Cluster()
    with pytest.raises(ActionRefused, match="reserved for the chart's Services"):
        ensure(cluster, project)
    assert cluster.services == {}


@pytest.mark.parametrize(
    ("project", "reason"),
    [
        ("1st", r"begins with a letter.*1\.36"),
        ("my_logs", "at most 63 letters, digits and hyphens"),
        ("a" * 64, "at most 63 letters, digits and hyphens"),
    ],
)
def test_a_name_that_no_service_can_have_is_refused_with_the_reason(project: str, reason: str) -> None:
    with pytest.raises(ActionRefused, match=f"project {project} cannot.*use a project whose name.*{reason}"):
        ensure(Cluster(), project)


def test_any_other_project_gets_its_service() -> None:
    cluster = Cluster()
    ensure(cluster, "release")
    assert list(cluster.services) == ["release"]


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://loghub.svc", 80), ("https://loghub.svc", 443), ("https://loghub.svc:8443", 8443)],
)
def test_the_service_has_the_port_of_the_endpoint(endpoint: str, port: int) -> None:
    cluster = Cluster("demo")
    ensure(cluster, "demo", dataclasses.replace(SETTINGS, embedded_endpoint=endpoint))
    (served,) = cluster.services["demo"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port, "http")


@pytest.mark.parametrize("existing", [0, 1, 2])
def test_beyond_a_number_of_services_no_more_are_made(existing: int) -> None:
    cluster = Cluster(*(f"p{number}" for number in range(existing)))
    settings = dataclasses.replace(SETTINGS, max_project_services=2)
    if existing < 2:
        ensure(cluster, "demo", settings)
        assert "demo" in cluster.services
        return
    with pytest.raises(ActionRefused, match=r"loghub has 2 Services of projects.*maxProjectServices"):
        ensure(cluster, "demo", settings)
    assert "demo" not in cluster.services
    ensure(cluster, "p0", settings)  # one that exists is applied again


def observe(
    cluster: Cluster, spec: Document, *, existing: tuple[str, ...], logstore: bool = True
) -> ObservedState:
    server = MemoryServer()
    for name in existing:
        server.client(name).create_project()
    if logstore and "demo" in existing:
        server.client("demo").create_logstore("access", shards=1)
    pool, api = LogServicePool(lambda _, project, __: server.client(project)), cluster
    given: Any = api
    observer, _ = observer_and_applier(given, pool, settings=SETTINGS, clock=SystemClock())
    try:
        return asyncio.run(observer.observe(resource(spec)))
    finally:
        pool.close()


def ensured(observed: ObservedState, spec: Document) -> list[str]:
    actions = plan(resource(spec), observed, EPOCH).actions
    return [one.project for one in actions if isinstance(one, EnsureProjectService)]


@pytest.mark.parametrize(
    ("spec", "existing", "services", "expected"),
    [
        ({}, (), (), []),
        ({}, ("demo",), (), ["demo"]),
        ({}, ("demo",), ("demo",), []),
        ({}, (), ("demo",), []),
        (COPY, ("demo",), (), ["demo"]),
        (COPY, ("demo", "backup"), (), ["demo", "backup"]),
        (COPY, ("demo", "backup"), ("demo",), ["backup"]),
        (COPY, ("backup",), (), ["backup"]),
        (COPY, ("demo", "backup"), ("demo", "backup"), []),
        (SAME, ("demo",), ("demo",), []),
        (REJECTED, ("demo", "rejected"), ("demo",), ["rejected"]),
        (REJECTED, ("demo",), ("demo",), []),
        (
            {**COPY, "pipeline": COPY["pipeline"] | REJECTED["pipeline"]},
            ("demo", "backup"),
            (),
            ["demo", "backup"],
        ),
    ],
)
def test_a_project_gets_a_service_once_it_exists(
    spec: Document, existing: tuple[str, ...], services: tuple[str, ...], expected: list[str]
) -> None:
    """Of all projects that the object names, and before a worker runs that needs it."""
    observed = observe(Cluster(*services), spec, existing=existing)
    assert ensured(observed, spec) == expected


def test_a_project_without_the_logstore_gets_a_service_with_which_the_logstore_can_be_made() -> None:
    observed = observe(Cluster(), {}, existing=("demo",), logstore=False)
    assert ensured(observed, {}) == ["demo"]


def test_without_a_valid_key_no_service_is_made() -> None:
    cluster = Cluster()
    cluster.keys = {}
    for spec in ({}, COPY):
        assert ensured(observe(cluster, spec, existing=("demo", "backup")), spec) == []


def test_a_target_whose_project_does_not_exist_is_reported() -> None:
    observed = observe(Cluster("demo"), COPY, existing=("demo",))
    (ready,) = (one for one in plan(resource(COPY), observed, EPOCH).status.conditions if one.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "Creating")  # of the group, which is first
    group = dataclasses.replace(available(observed.service), group=GroupSettings(timeout_s=30, order=False))
    later = dataclasses.replace(observed, service=group)
    (ready,) = (one for one in plan(resource(COPY), later, EPOCH).status.conditions if one.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ProjectWithoutService")
    assert ready.message == "project backup has no Service yet: project backup does not exist"
