"""From pods to statuses, and from these to the states of shards and to what cannot be delivered."""

import asyncio
import builtins
from typing import Any

import pytest
from aiohttp import web

from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub.contract.worker import FailingShard, SkippedLogGroups
from loghub.domain.state_inference import WorkerReport
from loghub_operator.clients.kube import POD, STATEFUL_SET, Kind
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.group_changes import create_group
from loghub_operator.logservice.group_state import ConsumerGroupKey
from loghub_operator.model.actions import CreateGroup
from loghub_operator.model.observed import GroupSettings, ObservedState, ShardFailures, ShardObserved
from loghub_operator.observe.observer import placement_of
from loghub_operator.observe.pods import address_of, reports_of, statuses_of
from loghub_operator.resources.services import METRICS_PORT
from loghub_operator.resources.statefulset import with_replicas, worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.logservice.test_group_state import WithoutExtensions
from tests.loghub_operator.observe.test_observer import KEYS, Objects, secret
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.status_server import Handler, returning, served, shard, worker_status
from tests.loghub_operator.support.wiring import observer_and_applier

Document = dict[str, Any]
TIMEOUT_S = 30.0
HAND_OVER = worker_status(shard(0), shard(1, draining=True))


def pod(
    address: str,
    name: str = "access-0",
    *,
    phase: str = "Running",
    port_name: str = "metrics",
    ready: bool = False,
) -> Document:
    host, _, port = address.rpartition(":")
    sidecar = {"name": "proxy", "ports": [{"name": "metrics", "containerPort": 1}]}
    worker = {"name": "worker", "ports": [{"name": port_name, "containerPort": int(port)}]}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [sidecar, worker]},
        "status": {
            "phase": phase,
            "podIP": host,
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def test_a_running_pod_is_queried_at_its_address_and_named_port() -> None:
    assert address_of(pod("10.1.2.3:9000")) == "10.1.2.3:9000"
    assert address_of(pod("10.1.2.3:9000", port_name="other")) == f"10.1.2.3:{METRICS_PORT}"
    assert address_of(pod("fd00::7:9000")) == "[fd00::7]:9000"


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown"])
def test_a_pod_that_does_not_run_has_no_address(phase: str) -> None:
    assert address_of(pod("10.1.2.3:9000", phase=phase)) is None


@pytest.mark.parametrize("host", ["", "example.org", "10.1.2.3/8", "10.1.2.3@example.org"])
def test_an_invalid_pod_ip_is_no_address(host: str) -> None:
    assert address_of(pod(f"{host}:9000")) is None


def test_the_pods_that_the_operator_creates_have_the_named_port() -> None:
    group = resource()
    config = worker_config(group, placement_of(group, Settings(embedded_endpoint="http://127.0.0.1:1")))
    template = worker_spec(group, config, image="i").stateful_set["spec"]["template"]
    result = {**template, "status": {"phase": "Running", "podIP": "10.1.2.3"}}
    assert address_of(result) == f"10.1.2.3:{METRICS_PORT}"


def test_every_expected_consumer_has_an_entry_and_no_other_pod_is_queried() -> None:
    queried = []

    async def counted(request: web.Request) -> web.StreamResponse:
        queried.append(request.path)
        return await returning(HAND_OVER)(request)

    async def run() -> dict[str, WorkerReport | None]:
        async with served(counted) as address:
            pods = [pod(address), pod(address, "access-1"), pod(address, "access-debug")]
            expected = ["access-0", "access-1", "access-2"]
            statuses = await statuses_of(pods, expected)
        return reports_of(statuses, expected=expected, timeout_s=TIMEOUT_S)

    report = WorkerReport(held=frozenset({0, 1}), draining=frozenset({1}))
    # What answers at the address of access-1 is another worker: the address was assigned again.
    assert asyncio.run(run()) == {"access-0": report, "access-1": None, "access-2": None}
    assert len(queried) == 2


class Cluster(Objects):
    """With pods."""

    def __init__(self, pods: list[Document], *objects: tuple[Kind, str, str, Document]) -> None:
        super().__init__(*objects)
        self._pods = pods

    async def list(self, *queried: object) -> builtins.list[Document]:
        return self._pods if queried[0] is POD else []


def shards_observed(handler: Handler, *, extensions: bool, replicas: int = 1) -> tuple[ShardObserved, ...]:
    """The shards of `observed`."""
    return available(observed(handler, extensions=extensions, replicas=replicas).service).shards


def observed(handler: Handler, *, extensions: bool, replicas: int = 1, ready: bool = False) -> ObservedState:
    """What the observer makes of a group with one pod, whose worker answers so."""
    server, group = MemoryServer(), resource()
    client = server.client("demo")
    client.create_project()
    client.create_logstore("access", shards=3)
    create_group(
        client, ConsumerGroupKey.of(group), CreateGroup(settings=GroupSettings(timeout_s=30, order=False))
    )
    settings = Settings(embedded_endpoint="http://127.0.0.1:1")
    config = worker_config(group, placement_of(group, settings))
    spec = worker_spec(group, config, image=settings.worker_image)
    workers = with_replicas(spec.stateful_set, replicas)

    def connect(*_: object) -> LogHub:
        queried: Any = client if extensions else WithoutExtensions(client)
        return queried

    async def run() -> ObservedState:
        pool = LogServicePool(connect)
        async with served(handler) as address:
            kube: Any = Cluster(
                [pod(address, ready=ready)], secret(**KEYS), (STATEFUL_SET, "default", "access", workers)
            )
            observer, _ = observer_and_applier(kube, pool, settings=settings, clock=SystemClock())
            try:
                result = await observer.observe(group)
            finally:
                pool.close()
        assert [one.name for one in result.workers] == ["access-0"]
        return result

    return asyncio.run(run())


def test_without_extensions_a_reported_handover_is_state_transfer() -> None:
    shards = shards_observed(returning(HAND_OVER), extensions=False)
    assert [(one.state, one.holder, one.next_holder) for one in shards] == [
        ("already_alloc", "access-0", ""),
        ("transfer", "access-0", ""),
        ("not_alloc", "", ""),
    ]


def test_with_extensions_a_worker_does_not_decide_about_the_states() -> None:
    queried = []

    async def counted(request: web.Request) -> web.StreamResponse:
        queried.append(request.path)
        return await returning(HAND_OVER)(request)

    for extensions in (True, False):
        states = {one.state for one in shards_observed(counted, extensions=extensions)}
        assert ("transfer" in states) != extensions
        assert len(queried) == 1, "once, also where the states are inferred from it"
        queried.clear()


@pytest.mark.parametrize("extensions", [True, False])
def test_what_a_worker_cannot_deliver_is_observed(extensions: bool) -> None:
    failing = [FailingShard(shard=1, cursor="MTA=", state="stopped", reason="PipelineFailed", attempts=5)]
    skipped = [SkippedLogGroups(shard=2, log_groups=3, last_cursor="MTE=", dead_lettered=True)]
    status = worker_status(failing=failing, skipped=skipped)
    failures = observed(returning(status), extensions=extensions, ready=True).failures
    assert failures == ShardFailures(failing=tuple(failing), skipped=tuple(skipped))


@pytest.mark.parametrize("extensions", [True, False])
def test_settings_that_a_worker_does_not_know_are_observed(extensions: bool) -> None:
    status = worker_status(contract_version=1, ignored_settings=["sink.level"])
    (worker,) = observed(returning(status), extensions=extensions, ready=True).workers
    assert worker.ignored_settings == ("sink.level",)


@pytest.mark.parametrize("ready", [True, False])
def test_a_target_that_is_away_is_observed_although_the_pod_is_fine(ready: bool) -> None:
    """Whatever else a worker reports of itself, its shards or its termination message say."""
    for reason, expected in (("SinkUnavailable", "SinkUnavailable"), ("PipelineFailed", "")):
        status = worker_status(reason=reason, message="x" * 10_000)
        (worker,) = observed(returning(status), extensions=True, ready=ready).workers
        assert (worker.reason, worker.message) == (expected, "x" * 1000 if expected else "")


@pytest.mark.parametrize("ready", [True, False])
def test_a_ready_worker_that_does_not_answer_is_named(ready: bool) -> None:
    """One that is starting says nothing yet."""

    async def broken(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    failures = observed(broken, extensions=True, ready=ready).failures
    assert failures == ShardFailures(unreported=("access-0",) if ready else ())


def test_a_worker_whose_pod_is_being_replaced_may_hold_what_no_other_reports() -> None:
    shards = shards_observed(returning(HAND_OVER), extensions=False, replicas=2)
    assert [(one.shard, one.state) for one in shards] == [
        (0, "already_alloc"),
        (1, "transfer"),
        (2, "unknown"),
    ]
