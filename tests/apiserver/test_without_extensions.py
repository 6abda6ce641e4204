"""A log service without our extensions, as the real SLS is: only the worker reports that it left, or that it
hands a shard over.
"""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import LogHub
from loghub.contract.worker import WorkerStatus
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import (
    Membership,
    MembershipTimings,
    SendHeartbeat,
    ShardPhase,
    ShutdownMode,
)
from loghub_operator.api.labels import worker_selector
from loghub_operator.clients.kube import EVENT, POD, STATEFUL_SET
from loghub_operator.resources.services import METRICS_PORT
from loghub_worker.metrics import Figures, MetricsServer
from loghub_worker.status import Moment, QueryProgress, ShardReadings, member_of, status_of
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Stage, stage
from tests.loghub_operator.support.player import Player

pytestmark = pytest.mark.cluster


class WithoutExtensions(Player):
    extensions = False


class Member:
    """One worker's own membership and status server; its batch ends when the test says so."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.membership = Membership(MembershipTimings(interval_s=0.0, timeout_s=30.0, margin_s=5.0))
        self.membership.source_started()
        self.status = self._status()
        figures = Figures(lambda: self.status, dict)
        self.server = MetricsServer(f"{address}:{METRICS_PORT}", figures, lambda: self.status, time.time)
        self.server.start()

    def step(self, client: LogHub, *, batch_runs: bool) -> None:
        """Carries out what is due, as the heartbeat thread, the shard manager and the source do."""
        consumer = self.membership
        if not batch_runs:
            consumer.source_saw(consumer.version)
        request = consumer.poll(time.monotonic())
        if isinstance(request, SendHeartbeat):
            named = client.heartbeat(LOGSTORE, GROUP, consumer=self.name, held=request.held)
            consumer.answered(request.number, named, now=time.monotonic())
        elif request is not None:
            consumer.left(request.number)
        for shard in consumer.shards:
            if shard.phase is ShardPhase.OPENING:
                consumer.opened(shard.shard, epoch=shard.epoch, position=0, saved=0)
        self.status = self._status()

    def _status(self) -> WorkerStatus:
        return status_of(
            member_of(self.membership),
            name=self.name,
            now=Moment(monotonic_s=time.monotonic(), unix_s=time.time()),
            error=ReportedError(),
            query=QueryProgress(batch_hung_after_s=630),
            readings=ShardReadings(),
        )


class Reporting(WithoutExtensions):
    """The workers' memberships and status servers are real, each at a loopback address of its own."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # Another test run on this machine has another network.
        self._network = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
        self._members: dict[str, Member] = {}
        self.batch_runs = False

    def pod_ip(self, name: str) -> str:
        return f"{self._network}.{int(name.rpartition('-')[2]) + 1}"

    def _heartbeat(self, name: str, *, leave: bool) -> None:
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = Member(name, self.pod_ip(name))
        if leave:
            member.membership.set_shutdown_mode(ShutdownMode.LEAVE)
        member.step(self._client, batch_runs=self.batch_runs)
        if member.status.phase == "left":
            self._left.add(name)

    async def _stop(self, name: str) -> None:
        await super()._stop(name)
        self._members.pop(name).server.stop()


async def reasons(on: Stage) -> set[str]:
    return {one["reason"] for one in await on.kube.list(EVENT, on.namespace, {})}


def test_a_draining_worker_is_stopped_once_it_reports_that_it_left(server: Apiserver, tmp_path: Path) -> None:
    """Scaled down, suspended and deleted: no worker exceeds its bound, so no bound was waited for."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 3})
        await on.until_phase("Running", "3/3")
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        await on.apply({"replicas": 2, "suspend": True})
        await on.until_phase("Suspended", "0/0")
        await on.apply({"replicas": 2, "suspend": False})
        await on.until_phase("Running", "2/2")
        assert {"ScaledUp", "ScaledDown", "Suspended", "Resumed"} <= await reasons(on)
        await on.remove()
        await on.until_deleted()
        assert "DrainTimedOut" not in await reasons(on)
        assert on.player.stopped_without_leaving == []
        assert await on.get(STATEFUL_SET) is None
        assert await on.kube.list(POD, on.namespace, worker_selector(GROUP)) == []
        assert [one.name for one in on.client.list_groups(LOGSTORE)] == [GROUP], "deletionPolicy is Retain"

    stage(server, tmp_path, story, player=WithoutExtensions)


def test_a_handover_that_the_worker_reports_delays_the_next_step(server: Apiserver, tmp_path: Path) -> None:
    """A second worker joins while the first one's batch runs, then a third one is desired."""

    async def story(on: Stage) -> None:
        player = on.player
        assert isinstance(player, Reporting)
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        await on.until("one holder", lambda: are(on, {"already_alloc": {"access-0"}}))

        player.batch_runs = True
        await on.apply({"replicas": 2})
        rebalancing = await on.until_reason("Rebalancing", "RebalanceInProgress")
        assert rebalancing["status"] == "True"
        await on.until_phase("Rebalancing", "2/2")
        moving = [one for one in (await on.status())["shards"] if one["state"] == "transfer"]
        assert [(one["consumer"], one.get("nextConsumer")) for one in moving] == [("access-0", None)] * 2
        first = moving[0]["id"]
        assert f"{first}: access-0 -> not known" in (await on.condition("Rebalancing"))["message"]

        await on.apply({"replicas": 3})
        limited = await on.until_reason("ScalingLimited", "RebalanceInProgress")
        assert limited["message"].startswith("3 workers desired; waiting while shards are in state transfer")
        await on.until_rounds(3)
        workers = await on.get(STATEFUL_SET)
        assert workers is not None
        assert workers["spec"]["replicas"] == 2

        player.batch_runs = False
        await on.until_phase("Running", "3/3")
        everyone = {"access-0", "access-1", "access-2"}
        await on.until("three holders", lambda: are(on, {"already_alloc": everyone}))
        assert (await on.condition("Rebalancing"))["reason"] == "Balanced"
        shown = {one["id"]: one["consumer"] for one in (await on.status())["shards"]}
        assert shown == {one.shard: one.holder for one in on.client.group_status(LOGSTORE, GROUP).shards}
        await on.remove()
        await on.until_deleted()
        assert player.stopped_without_leaving == []

    stage(server, tmp_path, story, player=Reporting)


async def are(on: Stage, expected: dict[str, set[str]]) -> bool:
    """Whether the status has exactly these states, each with exactly these consumers."""
    result: dict[str, set[str]] = {}
    for shard in (await on.status()).get("shards", []):
        result.setdefault(shard["state"], set()).add(shard.get("consumer", ""))
    return result == expected
