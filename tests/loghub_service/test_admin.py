"""The admin port: metrics and health."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loghub.client.port import Credentials
from loghub_service.connections.listener import HttpConnection, HttpConnections
from loghub_service.http.gate import AdminApplication
from loghub_service.http.metrics import ProcessFacts, ServiceExposition, Serving
from loghub_service.ports import usage_of
from loghub_service.settings import Limits
from loghub_service.start import RecoveryProgress
from tests.loghub_service.inprocess import InProcess, in_process
from tests.loghub_service.rawclient import RawClient, group_of
from tests.loghub_service.test_budgets import LB, PROTOBUF, Gate, begin_put, settle
from tests.support import ServiceProcess, running_service, wait_until

SECRET = "a-secret-of-a-test"
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series_of(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Admin:
    """The admin application over a service in this process."""

    def __init__(self, service: InProcess, folder: Path) -> None:
        self._service = service
        self.connections = HttpConnections(3)
        self.problems = {"access keys": ""}
        self.exposition = ServiceExposition(
            service.metrics,
            ProcessFacts(
                progress=RecoveryProgress(shards=7, steps=5),
                connections=self.connections,
                problems=lambda: self.problems,
                lost_lines=lambda: {"repeated": 3, "not read": 4},
            ),
        )
        self.exposition.serving = Serving(engine=service.engine, budgets=service.app.budgets)
        self._app = AdminApplication(self.exposition, data=str(folder), api=service.app)

    async def get(self, path: str) -> tuple[int, str]:
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        reply = await self._service.begin_scope(scope, (), app=self._app).reply()
        assert reply is not None
        return reply.status, reply.body.decode()

    async def series(self) -> Series:
        status, text = await self.get("/metrics")
        assert status == 200
        return series_of(text)


def value(series: Series, name: str, **labels: str) -> float:
    return series[f"loghub_service_{name}", tuple(sorted(labels.items()))]


def test_requests_and_bytes_are_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path) as service:
            admin = Admin(service, tmp_path)
            group = group_of("a")
            headers = PROTOBUF | {"x-log-bodyrawsize": str(len(group))}
            before = await admin.series()
            await service.ok("POST", LB, body=group, headers=headers)
            unsigned = await service.begin("GET", "/logstores", headers={"Authorization": ""}).reply()
            unknown = await service.begin("GET", "/nothing").reply()
            refused = await service.begin("GET", "/logstores/none").reply()
            assert unsigned is not None
            assert unknown is not None
            assert refused is not None
            after = await admin.series()
            assert value(after, "requests_total", action="PutLogs", status="200") == 1
            assert value(after, "requests_total", action="unauthenticated", status="401") == 1
            assert value(after, "requests_total", action="unknown", status="405") == 1
            assert value(after, "requests_total", action="GetLogStore", status="404") == 1
            sent = sum(len(reply.body) for reply in (unsigned, unknown, refused))
            assert value(after, "sent_bytes_total") - value(before, "sent_bytes_total") == sent
            assert value(after, "received_bytes_total") - value(before, "received_bytes_total") == len(group)
            assert value(after, "commit_duration_seconds_count", log="logs") >= 1
            assert value(after, "commit_duration_seconds_count", log="metadata") >= 1

    asyncio.run(scenario())


def test_what_is_in_use_is_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path, limits=Limits(log_bytes=5000)) as service:
            admin = Admin(service, tmp_path)
            known = HttpConnection(peer="p", abort=lambda: None)
            for connection in (known, *(HttpConnection(peer="p", abort=lambda: None) for _ in range(3))):
                admin.connections.admit(connection)
                admin.connections.authenticated(known, "k")
            unfinished = begin_put(service, 1001)
            await settle()
            await service.ok(
                "POST",
                "/logstores/access/consumergroups/g",
                {"type": "heartbeat", "consumer": "c"},
                body=b"[]",
            )
            series = await admin.series()
            assert value(series, "memory_used_bytes", budget="put_logs") == 1000
            assert value(series, "memory_limit_bytes", budget="put_logs") == 5000
            assert value(series, "memory_used_bytes", budget="json") == 0
            assert value(series, "memory_used_bytes", budget="responses") == 0
            assert value(series, "connections", authenticated="true") == 1
            assert value(series, "connections", authenticated="false") == 2
            assert value(series, "connections_limit") == 3
            assert value(series, "connections_evicted_total") == 1
            assert value(series, "connections_refused_total") == 0
            numbers = ("projects", "logstores", "shards", "consumer_groups", "consumers")
            assert [value(series, name) for name in numbers] == [1] * 5
            usage = usage_of(str(tmp_path))
            assert value(series, "disk_size_bytes") == usage.size_bytes
            assert 0 < value(series, "disk_free_bytes") <= usage.size_bytes
            assert value(series, "rotation_failed", files="access keys") == 0
            admin.problems["access keys"] = "broken"
            assert value(await admin.series(), "rotation_failed", files="access keys") == 1
            unfinished.arriving.put_nowait(None)
            await unfinished.reply()

    asyncio.run(scenario())


def test_a_recovery_is_shown_before_there_is_anything_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path) as service:
            admin = Admin(service, tmp_path)
            assert value(await admin.series(), "recovering") == 0
            admin.exposition.serving = None
            series = await admin.series()
            names = ("recovering", "recovery_shards", "recovery_shards_done")
            assert [value(series, name) for name in names] == [1, 7, 2]
            assert value(series, "connections_limit") == 3
            assert value(series, "disk_free_bytes") > 0

    asyncio.run(scenario())


def test_no_series_is_named_by_a_client(tmp_path: Path) -> None:
    """Else a client could create any number of them, which live as long as the process."""

    async def scenario() -> None:
        async with in_process(tmp_path) as service:
            admin = Admin(service, tmp_path)
            before = await admin.series()
            for number in range(20):
                await service.begin("GET", f"/logstores/chosen{number}").reply()
                await service.begin("CHOSEN" + str(number), f"/chosen{number}").reply()
            after = await admin.series()
            assert len(after) <= len(before) + 2
            assert not re.search("chosen|demo", str(list(after)), re.IGNORECASE)

    asyncio.run(scenario())


def test_a_commit_that_hangs_is_not_healthy(tmp_path: Path) -> None:
    gate = Gate()

    async def scenario() -> None:
        async with in_process(tmp_path, start_batches=gate.start_batches) as service:
            admin = Admin(service, tmp_path)
            group = group_of("a")
            headers = PROTOBUF | {"x-log-bodyrawsize": str(len(group))}
            gate.open.clear()
            put = service.begin("POST", LB, body=group, headers=headers)
            while not service.engine.commits["logs"].waiting:
                await asyncio.sleep(0.01)
            stall_s = service.engine.settings.commit_stall_s
            service.clock.now_s += stall_s
            assert await admin.get("/healthz") == (200, '{"status":"ok"}')
            service.clock.now_s += 1
            status, text = await admin.get("/healthz")
            assert (status, json.loads(text)["status"]) == (503, "stalled")
            assert "no change of the logs was committed for 61 s" in text
            assert value(await admin.series(), "commit_stalled_seconds", log="logs") == stall_s + 1
            assert value(await admin.series(), "commit_waiting", log="logs") == 1
            assert value(await admin.series(), "commit_waiting_bytes", log="logs") == len(group)
            gate.open.set()
            assert (await put.reply()) is not None
            assert (await admin.get("/healthz"))[0] == 200
            series = await admin.series()
            assert value(series, "commit_duration_seconds_bucket", log="logs", le="30.0") == 0
            assert value(series, "commit_duration_seconds_bucket", log="logs", le="+Inf") == 1

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    extra = ("--admin-listen", "127.0.0.1:0")
    with running_service(tmp_path_factory.mktemp("service"), extra=extra) as running:
        yield running


def admin_address(service: ServiceProcess) -> str:
    (line,) = service.await_events("admin port")
    return str(line["address"])


def fetch(address: str, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{path}", timeout=180) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.long
def test_a_process_serves_metrics_and_health_on_its_admin_port_only(service: ServiceProcess) -> None:
    address = admin_address(service)
    status, text = fetch(address, "/metrics")
    assert status == 200
    assert value(series_of(text), "connections_limit") == Limits().connections
    assert "process_resident_memory_bytes" in text
    assert fetch(address, "/healthz") == (200, '{"status":"ok"}')
    assert fetch(address, "/")[0] == 404
    api = f"{service.host}:{service.port}"
    assert fetch(api, "/healthz")[0] == 200
    assert fetch(api, "/metrics")[0] == 401


@pytest.mark.long
def test_an_invalid_rotation_of_keys_is_logged_and_shown_without_secrets(service: ServiceProcess) -> None:
    address = admin_address(service)
    entry = {
        "accessKeyId": "w",
        "accessKeySecret": SECRET,
        "projects": ["*"],
        "rights": ["rad"],
    }
    (service.credentials_dir / "accessKeys.json").write_text(json.dumps([entry]))

    def failed() -> bool:
        return value(series_of(fetch(address, "/metrics")[1]), "rotation_failed", files="access keys") == 1

    wait_until(failed, "the problem to be noticed")
    assert len(service.await_events("access keys not read, the previous content stays in use")) == 1
    assert SECRET not in service.log.read_text()
    (service.credentials_dir / "accessKeys.json").write_text(json.dumps([entry | {"rights": ["read"]}]))
    wait_until(lambda: not failed(), "the new keys to be read")
    key = Credentials(access_key_id="w", access_key_secret=SECRET)
    with RawClient(service, credentials=key) as client:
        assert client.send("GET", "/").code == "ProjectNotExist"
