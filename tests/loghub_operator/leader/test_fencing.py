"""Nothing is written after the deadline, neither in the cluster nor at a log service."""

import asyncio
import inspect
from typing import Any

import pytest

from loghub.client.port import Credentials, GroupInfo, LogHub
from loghub_operator.clients.kube import POD, Kube, KubeError
from loghub_operator.leader.fencing import READS, FencedKube, WriteFence, fenced_connect
from loghub_operator.model.actions import ActionRefused
from tests.fakes.fake_log_service import MemoryServer
from tests.support import HandClock

KEY = Credentials(access_key_id="id", access_key_secret="secret")
WRITES = {
    "create_project", "delete_project", "create_logstore", "delete_logstore", "split_shard", "merge_shards",
    "delete_shard",
    "put_logs", "create_group", "update_group", "delete_group", "heartbeat", "update_checkpoint",
    "save_checkpoints", "leave",
    "create_subscription", "delete_subscription", "seek_subscription", "skip_subscription", "exchange",
}  # fmt: skip


class Recorded:
    """Any port: records its calls, and never answers those that a test selects."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        async def requested(*_: object, **__: object) -> None:
            self.requested.append(name)
            if self.hangs:
                await asyncio.Event().wait()

        return requested


def _public(port: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")}


def test_every_call_of_the_ports_is_classified_as_read_or_write() -> None:
    assert _public(LogHub) == READS | WRITES
    assert _public(Kube) == _public(FencedKube)


@pytest.mark.parametrize("now", [9.0, 10.0])
def test_writes_to_the_cluster_are_fenced(now: float) -> None:
    clock, port = HandClock(10.0), Recorded()
    result: Any = port
    kube = FencedKube(result, WriteFence(clock, deadline_s=10.0))
    clock.now = now
    document = {"kind": "Pod"}
    writes = [
        lambda: kube.create(document),
        lambda: kube.apply(document),
        lambda: kube.patch(POD, "n", "p", {}),
        lambda: kube.delete(POD, "n", "p"),
    ]

    async def play() -> None:
        await kube.get(POD, "n", "p")
        await kube.list(POD, "n", {})
        for write in writes:
            if now < 10.0:
                await write()
            else:
                with pytest.raises(KubeError, match="does not hold the lease"):
                    await write()

    asyncio.run(play())
    assert port.requested == ["get", "list", *(["create", "apply", "patch", "delete"] if now < 10.0 else [])]


def test_a_hanging_write_is_cancelled_before_another_operator_may_write() -> None:
    clock, port = HandClock(10.0), Recorded()
    result: Any = port
    port.hangs = True
    fence = WriteFence(clock, deadline_s=10.05, end_s=10.1)
    kube = FencedKube(result, fence)
    with pytest.raises(KubeError, match="does not hold the lease"):
        asyncio.run(kube.create({"kind": "Pod"}))
    assert fence.under_way == 0


def test_writes_to_the_log_service_are_fenced() -> None:
    clock, server = HandClock(10.0), MemoryServer()
    fence = WriteFence(clock, deadline_s=11.0)
    log_service = fenced_connect(lambda _, project, __: server.client(project), fence)("e", "demo", KEY)
    log_service.create_project()
    log_service.create_logstore("access", shards=1)
    clock.now = 11.0
    with pytest.raises(ActionRefused):
        log_service.create_group("access", GroupInfo(name="g", timeout_s=30, order=False))
    assert log_service.list_groups("access") == ()
    fence.extend(deadline_s=12.0, end_s=13.0)
    log_service.create_group("access", GroupInfo(name="g", timeout_s=30, order=False))
    fence.close()
    with pytest.raises(ActionRefused):
        log_service.delete_group("access", "g")
    assert len(log_service.list_groups("access")) == 1
