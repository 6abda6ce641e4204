"""Operations of users and changes by others, over a real apiserver: suspend, checkpoint reset and its undo,
two objects for one group, an invalid overlay.

Pods are simulated (`tests.loghub_operator.support.harness`); the apiserver, its authorization, kopf and the
whole operator are real.
"""

import asyncio
import functools
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from loghub.wire import loggroup
from loghub_operator.api.adoption import GroupRecord, record_annotations
from loghub_operator.clients.kube import CONFIG_MAP, CONSUMER_GROUP, EVENT, POD, STATEFUL_SET
from loghub_operator.controller import handlers
from loghub_operator.controller.watch_check import WatchCheck
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document, resource
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, PROJECT, Stage, stage

pytestmark = pytest.mark.cluster

SHARDS = 4
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def fill(server: MemoryServer, groups: int = 8) -> None:
    """Log groups in every shard."""
    client = server.client(PROJECT)
    group = loggroup.encode(loggroup.LogGroup(logs=(loggroup.Log(time=1, contents=(("line", "x"),)),)))
    for shard in client.list_shards(LOGSTORE):
        for _ in range(groups):
            client.put_logs(LOGSTORE, group, hash_key=shard.begin_key)


def checkpoints(on: Stage) -> dict[int, str]:
    return {one.shard: one.cursor for one in on.client.get_checkpoints(LOGSTORE, GROUP)}


def cursors(on: Stage, position: Any) -> dict[int, str]:
    return {shard: on.client.get_cursor(LOGSTORE, shard, position) for shard in range(SHARDS)}


async def until_moved(on: Stage, nonce: str, phase: str) -> Document:
    async def holds() -> bool:
        reset = (await on.status()).get("checkpointReset", {})
        return (reset.get("nonce"), reset.get("phase")) == (nonce, phase)

    await on.until(f"reposition {nonce} {phase}", holds)
    moved: Document = (await on.status())["checkpointReset"]
    return moved


async def until_idle(on: Stage) -> None:
    """The rates of arrival are known too: the last that is reported after a start."""

    async def rates_known() -> bool:
        inputs = (await on.status()).get("scaling", {}).get("inputs", {})
        return inputs.get("arrivalPerSecond") == 0

    await on.until("that nothing arrives", rates_known)
    await on.until_rounds(2)


async def event_notes(on: Stage, reason: str) -> list[str]:
    """Of each time that it happened."""
    result = [one for one in await on.kube.list(EVENT, on.namespace, {}) if one["reason"] == reason]
    counts = [(one.get("series") or {}).get("count", 1) for one in result]
    return [one["note"] for one, count in zip(result, counts, strict=True) for _ in range(count)]


def test_suspend_and_resume(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        await on.apply({"replicas": 2, "suspend": True})
        await on.until_phase("Suspended", "0/0")
        assert on.player.stopped_without_leaving == []
        paused, ready = await on.condition("Suspended"), await on.condition("Ready")
        assert (paused["status"], paused["reason"]) == ("True", "Suspended")
        assert (ready["status"], ready["reason"]) == ("True", "Suspended")
        assert [one.name for one in on.client.list_groups(LOGSTORE)] == [GROUP]
        await until_idle(on)
        before = await on.versions()
        await on.until_rounds(4)
        assert await on.versions() == before
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        assert (await on.condition("Suspended"))["reason"] == "NotSuspended"
        assert len(await event_notes(on, "Suspended")) == len(await event_notes(on, "Resumed")) == 1

    stage(server, tmp_path, story)


def test_an_endpoint_that_comes_and_goes_leaves_one_event_with_a_count(
    server: Apiserver, tmp_path: Path
) -> None:
    """Also for an operator that is restarted meanwhile."""
    times = 4

    async def story(on: Stage) -> None:
        async def comes_and_goes() -> None:
            on.server.unreachable = True
            await on.until_reason("GroupSynced", "EndpointUnreachable")
            on.server.unreachable = False
            await on.until_reason("GroupSynced", "UpToDate")

        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        for _ in range(times):
            await comes_and_goes()
        await on.stop_operator()
        on.start_operator()
        await comes_and_goes()

        async def counted() -> bool:
            return len(await event_notes(on, "EndpointUnreachable")) == times + 1

        await on.until("each time counted", counted)
        events = await on.kube.list(EVENT, on.namespace, {})
        names = [one["reason"] for one in events]
        assert names.count("EndpointUnreachable") == names.count("UpToDate") == 1
        assert {one["reportingInstance"] for one in events} == {socket.gethostname()}

    stage(server, tmp_path, story)


def test_reset_and_undo(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        fill(on.server)
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        begin, end = cursors(on, "begin"), cursors(on, "end")
        assert begin[0] != end[0]
        before = checkpoints(on)
        order = {"to": "End", "shards": [0, 2], "nonce": "one"}
        await on.apply({"replicas": 2, "resetCheckpoints": order})
        done = await until_moved(on, "one", "Succeeded")
        assert checkpoints(on) == {**before, 0: end[0], 2: end[2]}
        assert on.player.stopped_without_leaving == []
        backup = await on.get(CONFIG_MAP, done["backupConfigMap"])
        assert backup is not None
        assert backup["data"] == {"0": before[0], "2": before[2]}
        await on.until_phase("Running", "2/2")

        # Undo; shards that had no checkpoint go to where a worker would begin.
        undo = {"to": "ConfigMap", "configMapName": done["backupConfigMap"], "nonce": "two"}
        await on.apply({"replicas": 2, "resetCheckpoints": undo})
        await until_moved(on, "two", "Succeeded")
        assert checkpoints(on) == {**before, 0: begin[0], 2: begin[2]}

        # The same nonce again does nothing; one that was used before is refused.
        await on.until_rounds(4)
        assert len(await event_notes(on, "CheckpointResetSucceeded")) == 2
        await on.apply({"replicas": 2, "resetCheckpoints": order})
        failed = await until_moved(on, "one", "Failed")
        assert "was executed before" in failed["message"]
        assert checkpoints(on)[0] == begin[0]

    stage(server, tmp_path, story)


def test_the_commands_of_the_page_work_as_written(server: Apiserver, tmp_path: Path) -> None:
    """Suspend, reset and undo, for an object of another name."""
    lines = re.findall(r"^kubectl (patch lhcg access-log .*)$", PAGE.read_text(), re.MULTILINE)
    suspend, move, undo = (shlex.split(line.replace("access-log", GROUP)) for line in lines)

    async def story(on: Stage) -> None:
        fill(on.server)
        on.player.groups_at_once = 3
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")

        async def all_read() -> bool:
            return checkpoints(on) == cursors(on, "end")

        await on.until("every shard read to its end", all_read)
        before = checkpoints(on)
        await asyncio.to_thread(server.must, *suspend, "-n", on.namespace)
        await on.until_phase("Suspended", "0/0")
        await asyncio.to_thread(server.must, *move, "-n", on.namespace)
        assert (await until_moved(on, "1", "Succeeded"))["backupConfigMap"] == f"{GROUP}-checkpoints-1"
        assert checkpoints(on) == cursors(on, "begin")
        await asyncio.to_thread(server.must, *undo, "-n", on.namespace)
        await until_moved(on, "2", "Succeeded")
        assert checkpoints(on) == before

    stage(server, tmp_path, story)


def test_an_invalid_reset_moves_no_checkpoint(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        fill(on.server)
        metadata = {"name": "by-hand", "namespace": on.namespace}
        garbled = {"0": on.client.get_cursor(LOGSTORE, 0, "begin"), "1": "no cursor"}
        await on.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": garbled})
        await on.apply()
        await on.until_phase("Running", "1/1")
        orders: dict[str, tuple[Document, str]] = {
            "a": ({"to": "Begin", "shards": [0, 9]}, "the logstore has no shard 9"),
            "b": ({"to": "ConfigMap", "configMapName": "nowhere"}, "ConfigMap nowhere does not exist"),
            "c": ({"to": "ConfigMap", "configMapName": "by-hand"}, "does not map shard IDs to cursors"),
        }
        for nonce, (order, message) in orders.items():
            await on.apply({"resetCheckpoints": {**order, "nonce": nonce}})
            failed = await until_moved(on, nonce, "Failed")
            assert message in failed["message"]
            assert (await on.condition("Degraded"))["reason"] == "CheckpointResetFailed"
        assert set(checkpoints(on).values()) == {""}
        await on.apply()
        await on.until_phase("Running", "1/1")

    stage(server, tmp_path, story)


def test_reset_while_suspended(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        fill(on.server)
        await on.apply({"suspend": True, "resetCheckpoints": {"to": "Begin", "nonce": "old"}})
        result = await until_moved(on, "old", "Succeeded")
        assert "it was already in the manifest when the object was created" in result["message"]
        assert set(checkpoints(on).values()) == {""}
        await on.apply({"suspend": True, "resetCheckpoints": {"to": "End", "nonce": "x"}})
        await until_moved(on, "x", "Succeeded")
        assert checkpoints(on) == cursors(on, "end")
        await on.until_phase("Suspended", "0/0")
        assert await on.get(STATEFUL_SET) is None

    stage(server, tmp_path, story)


@pytest.mark.parametrize("deletions_reported", [True, False], ids=["reported", "in a gap of the watch"])
def test_two_objects_on_one_group(
    deletions_reported: bool, server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = "later"
    if not deletions_reported:
        _hide_deletions(monkeypatch)

    async def story(on: Stage) -> None:
        await on.apply({"deletionPolicy": "Delete"})
        await on.until_phase("Running", "1/1")
        # In the same second perhaps, by which it is the younger one all the same: of two names the first.
        spec = {"project": PROJECT, "consumerGroup": GROUP, "timeoutSeconds": 99}
        await on.kube.apply(document(spec, namespace=on.namespace, name=later))

        async def owned() -> bool:
            result = await on.get(CONSUMER_GROUP, later) or {}
            conditions = result.get("status", {}).get("conditions", [])
            synced: Document = next((one for one in conditions if one["type"] == "GroupSynced"), {})
            message = "LogHubConsumerGroup access owns"
            return synced.get("reason") == "OwnershipConflict" and message in synced["message"]

        await on.until("the later one gives way", owned)
        assert await on.get(STATEFUL_SET, later) is None
        assert on.client.list_groups(LOGSTORE)[0].timeout_s == 30
        await on.remove()
        await on.until_deleted()

        async def taken_over() -> bool:
            return await on.get(STATEFUL_SET, later) is not None

        await on.until("the later one takes over", taken_over)
        (group,) = on.client.list_groups(LOGSTORE)
        assert (group.name, group.timeout_s) == (GROUP, 99)
        # Adopted, not created, so its own deletion keeps it.
        result = await on.get(CONSUMER_GROUP, later)
        assert result is not None
        assert result["metadata"]["annotations"]["loghub.dev/group-origin"] == "Adopted"

    stage(server, tmp_path, story)


def test_an_older_object_without_a_key_takes_no_group(server: Apiserver, tmp_path: Path) -> None:
    """Its author writes all annotations that the operator writes on an object that created its group."""
    older = "aaa"

    async def story(on: Stage) -> None:
        spec = {
            "project": PROJECT,
            "consumerGroup": GROUP,
            "timeoutSeconds": 99,
            "deletionPolicy": "Delete",
            "credentialsSecret": {"name": "absent"},
        }
        forged = record_annotations(GroupRecord("Created", 3), resource(spec))
        await on.kube.apply(document(spec, namespace=on.namespace, name=older, annotations=forged))

        async def reported() -> bool:
            found = await on.get(CONSUMER_GROUP, older) or {}
            return "CredentialsMissing" in str(found.get("status"))

        await on.until("the older one has no key", reported)
        for _ in range(2):  # and again after the owner was recreated, as the younger one
            await on.apply({"replicas": 1})
            await on.until_phase("Running", "1/1")
            assert on.client.list_groups(LOGSTORE)[0].timeout_s == 30
            await on.remove()
            await on.until_deleted()
        assert await on.get(STATEFUL_SET, older) is None

    stage(server, tmp_path, story)


def _hide_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a watch that was restarted; the watch check runs more often."""
    observed = handlers.on_group_event

    async def without_deletions(**event: Any) -> None:
        if event["type"] != "DELETED":
            await observed(**event)

    monkeypatch.setattr(handlers, "on_group_event", without_deletions)
    monkeypatch.setattr(WatchCheck, "run", functools.partialmethod(WatchCheck.run, every_s=0.5))


def test_a_rolling_restart_moves_no_shard(server: Apiserver, tmp_path: Path) -> None:
    """Each pod is recreated under its name and sends heartbeats again within the group's timeout."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        before = {name: await on.get(POD, name) for name in ("access-0", "access-1")}
        observed: list[tuple[str, ...]] = []

        async def rolled() -> bool:
            shards = on.client.group_status(LOGSTORE, GROUP).shards
            observed.append(tuple(shard.holder for shard in shards))
            now = {name: await on.get(POD, name) for name in before}
            return all(
                pod is not None and old is not None and pod["metadata"]["uid"] != old["metadata"]["uid"]
                for pod, old in zip(now.values(), before.values(), strict=True)
            )

        await on.apply({"replicas": 2, "spark": {"cores": 2}})
        await on.until("both pods replaced", rolled)
        await on.until_phase("Running", "2/2")
        await rolled()
        assert len(set(observed)) == 1
        assert await event_notes(on, "RollingRestart") != []

    stage(server, tmp_path, story)


def test_an_overlay_that_the_apiserver_rejects_leaves_the_workers(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply()
        await on.until_phase("Running", "1/1")
        before = await on.get(STATEFUL_SET)
        await on.apply({"worker": {"podTemplate": {"spec": {"restartPolicy": "Sometimes"}}}})
        refused = await on.until_reason("Ready", "ReconcileError")
        assert "Sometimes" in refused["message"]
        after = await on.get(STATEFUL_SET)
        assert before is not None
        assert after is not None
        assert before["spec"] == after["spec"]
        good = {"spec": {"nodeSelector": {"disk": "fast"}, "priorityClassName": None}}
        await on.apply({"worker": {"podTemplate": good}})

        async def applied() -> bool:
            result = await on.get(STATEFUL_SET)
            assert result is not None
            return bool(result["spec"]["template"]["spec"].get("nodeSelector") == {"disk": "fast"})

        await on.until("the overlay taken", applied)

    stage(server, tmp_path, story)
