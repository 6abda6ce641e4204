"""Consumers keep their shards while one attacker occupies what it can: connections with hostile heads and
bodies, some of them signed with a valid key of another project, and twice as many as the service accepts.

The consumers are the real library of the Python SDK, and the attack lasts longer than the timeout of their
group. In `make check-deep` there are a thousand connections, and the timeout is 30 s, as in production.
Verified against SLS: no.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar

import pytest
from aliyun.log import LogClient
from aliyun.log.logexception import LogException

from loghub.client.port import Credentials
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT, Sink, client_of, consuming, put, through_proxy
from tests.loghub_service.rawclient import RawClient
from tests.loghub_service.test_admin import admin_address, fetch, series_of, value
from tests.support import ROOT, ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long

T = TypeVar("T")

MEMORY_LIMIT = 1 << 30  # of the pod, in the chart
TENANT = Credentials(access_key_id="tenant", access_key_secret="tenantSecret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    connections: int
    heartbeat_s: int  # of the consumers; a third of the timeout

    @property
    def lasts_s(self) -> int:
        return 4 * self.heartbeat_s  # a shard that is not renewed is lost after three


MANY = pytest.param(Attack(connections=1000, heartbeat_s=10), marks=pytest.mark.deep(minutes=5))


@pytest.fixture(params=[Attack(connections=100, heartbeat_s=3), MANY], ids=["100", "1000"])
def attack(request: pytest.FixtureRequest) -> Attack:
    found: Attack = request.param
    return found


@pytest.fixture
def service(tmp_path: Path, attack: Attack) -> Iterator[ServiceProcess]:
    """Fewer connections than the attacker opens, so that it reaches the bound."""
    (tmp_path / "credentials").mkdir()
    entry = {"accessKeyId": TENANT.access_key_id, "accessKeySecret": TENANT.access_key_secret}
    keys = [entry | {"projects": ["tenant"], "rights": ["write"]}]
    (tmp_path / "credentials" / "accessKeys.json").write_text(json.dumps(keys))
    extra = ("--admin-listen", "127.0.0.1:0", "--max-connections", str(attack.connections // 2))
    with running_service(tmp_path, extra=extra) as running:
        yield running


@contextmanager
def attacking(service: ServiceProcess, attack: Attack) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.loghub_service.attacker"]
    key = {"ATTACKER_KEY_ID": TENANT.access_key_id, "ATTACKER_KEY_SECRET": TENANT.access_key_secret}
    with subprocess.Popen(
        [*command, service.host, str(service.port), str(attack.connections)],
        cwd=ROOT,
        env=os.environ | key,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "attacking\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def transitions(service: ServiceProcess) -> list[tuple[object, ...]]:
    """What happened to shards so far: shard, trigger and holder."""
    changes = service.events("shard state changed")
    return [(line["shard"], line["trigger"], line["holder"]) for line in changes]


def holders(service: ServiceProcess) -> list[str]:
    with RawClient(service) as raw:
        return [shard["holder"] for shard in raw.status(group=GROUP)["shards"]]


def under_attack(act: Callable[[], T]) -> T:
    """The result of a request. A connection that has not proven a key since it was opened, or that is idle,
    may have to give way, so it is tried again."""
    results: list[T] = []

    def answered() -> bool:
        with contextlib.suppress(ConnectionError, HTTPException, LogException):
            results.append(act())
        return bool(results)

    wait_until(answered, "an answer during the attack")
    return results[0]


def most_memory(service: ServiceProcess) -> int:
    """The largest resident set so far, in bytes."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def in_use(service: ServiceProcess) -> dict[str, float]:
    series = series_of(fetch(admin_address(service), "/metrics")[1])
    budgets = ("put_logs", "json", "responses")
    used = {budget: value(series, "memory_used_bytes", budget=budget) for budget in budgets}
    return used | {"unauthenticated": value(series, "connections", authenticated="false")}


def test_no_consumer_loses_a_shard_to_an_attacker(
    service: ServiceProcess, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    through_proxy(monkeypatch, service)
    client: LogClient = client_of(service)
    client.create_project(PROJECT, "of a test")
    client.create_logstore(PROJECT, LOGSTORE, ttl=1, shard_count=4)
    with RawClient(service, "tenant") as tenant:
        tenant.create()
    sink = Sink()
    with (
        consuming(service, "c-0", sink, heartbeat_interval=attack.heartbeat_s),
        consuming(service, "c-1", sink, heartbeat_interval=attack.heartbeat_s),
    ):
        wait_until(lambda: sorted(holders(service)) == ["c-0", "c-0", "c-1", "c-1"], "two shards each")
        put(client, ["before"])
        wait_until(lambda: sink.lines() == ["before"], "the first line")
        before, held = transitions(service), holders(service)
        with attacking(service, attack):
            threading.Event().wait(attack.lasts_s)  # nothing must happen meanwhile
            under_attack(lambda: put(client, ["during"]))
            wait_until(lambda: "during" in sink.lines(), "a line during the attack")
            assert under_attack(lambda: holders(service)) == held
        assert transitions(service) == before
        wait_until(lambda: not any(in_use(service).values()), "everything to be given back")
        put(client, ["after"])
        wait_until(lambda: "after" in sink.lines(), "a line after the attack")
        assert sink.lines() == ["before", "during", "after"]
        assert transitions(service) == before
        # Requests that are no HTTP leave no line each.
        assert "Invalid HTTP" not in service.log.read_text()
    assert most_memory(service) < MEMORY_LIMIT
    print(f"most memory: {most_memory(service) >> 20} MiB")
