"""The whole operator against a real apiserver and the in-memory log service; pods are simulated.

The apiserver, its authorization (the operator has the permissions of deploy/ only), kopf, observe, plan and
apply are real. There are no controllers here, so a `Player` creates the pods of the StatefulSet, sends
heartbeats for those that are ready, and leaves the group for those that are asked to drain.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.client.port import GroupInfo
from loghub_operator.api.labels import ANNOTATION_REVISION, FINALIZER, worker_selector
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    AioKube,
    configured,
)
from loghub_operator.controller import app as program
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.observe.group_index import Incarnation
from tests.apiserver.test_operations import until_idle
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.crash_injection import Fate, MortalKube, Never, mortal_connect
from tests.loghub_operator.support.examples import document
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Stage, stage

pytestmark = pytest.mark.cluster

SECRET_NAME = "loghub-credentials"


def test_life_of_a_group_from_apply_to_delete(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "2/2")
        status = await on.status()
        assert status["groupOrigin"] == "Created"
        assert (status["shardSummary"]["total"], status["shardSummary"]["assignable"]) == (4, 4)
        assert {shard["consumer"] for shard in status["shards"]} == {"access-0", "access-1"}
        assert {shard["state"] for shard in status["shards"]} == {"already_alloc"}
        assert on.client.list_groups(LOGSTORE) == (GroupInfo(name=GROUP, timeout_s=30, order=False),)
        assert await on.get(SERVICE, "access-workers")
        budget = await on.get(DISRUPTION_BUDGET, "access-workers") or {}
        assert budget["spec"]["maxUnavailable"] == 1
        account = await on.get(SERVICE_ACCOUNT, "access-workers") or {}
        assert account["automountServiceAccountToken"] is False

        # More than shards: capped, and said so.
        await on.apply({"replicas": 9, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "4/4")
        limited = await on.condition("ScalingLimited")
        assert (limited["status"], limited["reason"]) == ("True", "TooFewShards")

        # Fewer: every worker that is stopped has left before.
        await on.apply({"replicas": 1, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []
        assert {shard["consumer"] for shard in (await on.status())["shards"]} == {"access-0"}

        await on.remove()
        await on.until_deleted()
        assert on.client.list_groups(LOGSTORE) == ()
        assert await on.get(STATEFUL_SET) is None
        assert await on.get(DISRUPTION_BUDGET, "access-workers") is None
        assert await on.get(SERVICE_ACCOUNT, "access-workers") is None
        assert await on.kube.list(CONFIG_MAP, on.namespace, worker_selector(GROUP)) == []

    stage(server, tmp_path, story)


def test_the_watch_check_runs_without_any_object(server: Apiserver, tmp_path: Path) -> None:
    """The apiserver lists nothing as null if only versions are requested."""

    async def story(on: Stage) -> None:
        assert await on.kube.versions(CONSUMER_GROUP, "no-such-place") == {}

    stage(server, tmp_path, story)


def test_nothing_is_written_while_idle(server: Apiserver, tmp_path: Path) -> None:
    """Nor is anything that would change nothing, which no version would show."""

    async def story(on: Stage) -> None:
        called, stop = Never(), asyncio.Event()
        fate = Fate(called, lambda: None)
        async with AioKube(await configured()) as kube:
            connect, counted = mortal_connect(on.connect, fate), MortalKube(kube, fate)
            running = asyncio.create_task(program.run(on.settings, stop, connect=connect, kube=counted))
            try:
                await on.apply({"replicas": 1})
                await on.until_phase("Running", "1/1")
                await until_idle(on)
                assert "apply StatefulSet annotations,labels,ownerReferences,spec" in called.writes
                before = len(called.writes)
                await on.until_rounds(5)
                assert called.writes[before:] == []
            finally:
                stop.set()
                await running

    stage(server, tmp_path, story, operator=False)


def test_our_own_writes_start_no_reconcile(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits, versions, hear = 6, set[str](), WatchCheck.reported

    def reported(self: WatchCheck, known: Incarnation, version: str) -> None:
        versions.add(version)
        hear(self, known, version)

    async def story(on: Stage) -> None:
        async def settled() -> bool:
            """The status is of now, and the watch has reported it."""
            metadata = (result := await on.get() or {})["metadata"]
            current = result["status"].get("observedGeneration") == metadata["generation"]
            return current and metadata["resourceVersion"] in versions

        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        await on.stop_operator()
        monkeypatch.setattr(Stage, "settings", replace(on.settings, resync_s=3600.0))
        on.start_operator()
        await on.until_rounds(1)
        await on.until("rest", settled)
        before = on.rounds
        for number in range(edits):
            await on.apply({"replicas": 1, "deletionPolicy": ("Delete", "Retain")[number % 2]})
            await on.until(f"edit {number} reported", settled)
        assert on.rounds - before <= edits + edits // 2  # one each; two, were our own write a reason

    monkeypatch.setattr(WatchCheck, "reported", reported)
    stage(server, tmp_path, story)


def test_a_group_runs_once_its_missing_secret_exists(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply()
        reported = await on.until_reason("GroupSynced", "CredentialsMissing")
        assert SECRET_NAME in reported["message"]
        assert (await on.status())["phase"] == "Pending"
        await on.make_secret()
        await on.until_phase("Running", "1/1")

    stage(server, tmp_path, story, secret=False)


def test_a_missing_logstore_is_reported(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"logstore": "other", "pipeline": {"sink": {"parquet": {"path": "x"}}}})
        reported = await on.until_reason("GroupSynced", "LogstoreNotFound")
        assert "logstore other does not exist" in reported["message"]
        assert await on.get(STATEFUL_SET) is None

    stage(server, tmp_path, story)


def test_an_unreachable_log_service_leaves_the_workers_running(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        on.server.unreachable = True
        await on.until_phase("Degraded", "2/2")
        await on.apply({"replicas": 4})
        await on.until_reason("ScalingLimited", "LogServiceUnavailable")
        await on.until_phase("Degraded", "2/2")
        await on.until_rounds(2)
        assert (await on.get(STATEFUL_SET) or {})["spec"]["replicas"] == 2
        status = await on.status()
        assert "lag" not in status
        assert {shard["state"] for shard in status["shards"]} == {"unknown"}
        on.server.unreachable = False
        await on.until_phase("Running", "4/4")

    stage(server, tmp_path, story)


def test_invalid_sql_fails_one_worker_and_the_others_continue(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        await on.apply({"replicas": 2, "pipeline": {"sql": "SELEC 1"}})
        reported = await on.until_reason("WorkersAvailable", "InvalidPipeline")
        assert "access-1" in reported["message"]
        assert "SELEC" in reported["message"]
        await on.until_phase("Degraded", "1/2")
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        # The settings that no worker uses any more are deleted with the next change.
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        assert len(await on.kube.list(CONFIG_MAP, on.namespace, worker_selector(GROUP))) == 1

    stage(server, tmp_path, story)


@pytest.mark.parametrize("policy", ["Delete", pytest.param("Retain", marks=pytest.mark.deep)])
def test_an_adopted_group_is_not_deleted(policy: str, server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        on.client.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=60, order=False))
        await on.apply({"deletionPolicy": policy})
        await on.until_phase("Running", "1/1")
        assert (await on.status())["groupOrigin"] == "Adopted"
        assert on.client.list_groups(LOGSTORE)[0].timeout_s == 30
        await on.remove()
        await on.until_deleted()
        assert [group.name for group in on.client.list_groups(LOGSTORE)] == [GROUP]

    stage(server, tmp_path, story)


def test_a_deletion_begun_while_the_operator_was_away_is_finished(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"deletionPolicy": "Delete"})
        await on.until_phase("Running", "1/1")
        await on.stop_operator()
        await on.remove()
        result = await on.get(CONSUMER_GROUP)
        assert result is not None
        assert result["metadata"]["finalizers"] == [FINALIZER]
        on.start_operator()
        await on.until_deleted()
        assert on.client.list_groups(LOGSTORE) == ()

    stage(server, tmp_path, story)


def test_a_finalizer_that_another_client_wrote_too_does_not_delay_the_deletion(
    server: Apiserver, tmp_path: Path
) -> None:
    """As a backup that is restored, or an object that is applied as it was read, would."""

    async def story(on: Stage) -> None:
        await on.kube.apply(document({"project": "demo"}, namespace=on.namespace, finalizers=[FINALIZER]))
        await on.until_phase("Running", "1/1")
        await on.remove()
        await on.until_deleted()

    stage(server, tmp_path, story)


def test_a_stateful_set_of_another_owner_is_not_changed(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        marks = {"labels": {"app": "web"}, "annotations": {ANNOTATION_REVISION: "none"}}
        container = {"name": "web", "image": "web"}
        spec = {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": marks, "spec": {"containers": [container]}},
        }
        metadata = {"name": GROUP, "namespace": on.namespace}
        await on.kube.apply(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        )
        await on.apply({"deletionPolicy": "Delete"})
        reported = await on.until_reason("Ready", "ReconcileError")
        assert (
            f"StatefulSet {GROUP} in namespace {on.namespace} was created by another client"
            in reported["message"]
        )
        await on.remove()
        await on.until_deleted()
        assert on.client.list_groups(LOGSTORE) == ()
        result = await on.get(STATEFUL_SET)
        assert result is not None
        assert result["metadata"].get("deletionTimestamp") is None
        assert result["spec"]["selector"] == spec["selector"]

    stage(server, tmp_path, story)


def test_a_deleted_worker_pod_comes_back_and_the_group_runs(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        before = await on.get(POD, "access-1")
        assert before is not None
        await on.kube.delete(POD, on.namespace, "access-1")

        async def another() -> bool:
            result = await on.get(POD, "access-1")
            return result is not None and result["metadata"]["uid"] != before["metadata"]["uid"]

        await on.until("another access-1", another)
        await on.until_rounds(2)
        await on.until_phase("Running", "2/2")
        assert {shard["consumer"] for shard in (await on.status())["shards"]} == {"access-0", "access-1"}

    stage(server, tmp_path, story)


def test_kubectl_scale_and_columns(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        here = ("-n", on.namespace)
        await asyncio.to_thread(server.must, "scale", "lhcg", GROUP, "--replicas=3", *here)
        await on.until_phase("Running", "3/3")
        table = await asyncio.to_thread(server.must, "get", "lhcg", GROUP, *here)
        head, row = table.splitlines()
        assert head.split() == ["NAME", "PHASE", "READY", "UP-TO-DATE", "REASON", "SHARDS", "LAG(S)", "AGE"]
        assert row.split()[:7] == [GROUP, "Running", "3/3", "3", "Running", "4", "0"]
        scale = await asyncio.to_thread(
            server.must,
            "get",
            "--raw",
            f"/apis/loghub.dev/v1alpha1/namespaces/{on.namespace}/loghubconsumergroups/{GROUP}/scale",
        )
        assert '"selector":"app.kubernetes.io/instance=access,app.kubernetes.io/name=loghub-worker"' in scale

    stage(server, tmp_path, story)
