"""This release's operator with the CRD, the objects and the statuses of an older and of a newer release, over
a real apiserver of its own. Pods are simulated (`tests.loghub_operator.support.harness`).
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from loghub_operator.api.labels import ANNOTATION_REVISION
from loghub_operator.clients.kube import CONSUMER_GROUP, EVENT, POD, STATEFUL_SET
from loghub_operator.model.revision import Revision
from tests.cluster.apiserver import Standing
from tests.loghub_operator.support.apiserver import CRD, Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.golden import LOADER
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Stage, stage

pytestmark = [pytest.mark.cluster, pytest.mark.apiserver]

Properties = dict[str, Document]


def crd(change: Callable[[Properties, Properties], None]) -> Document:
    """Ours after a change of the properties of spec and status."""
    result: Document = yaml.load(CRD.read_text(), LOADER)
    schema = result["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    change(schema["spec"]["properties"], schema["status"]["properties"])
    return result


def newer(spec: Properties, status: Properties) -> None:
    """One more field everywhere, with defaults, one more sink, and one more value of each enumeration."""
    spec["newSetting"] = {
        "type": "object",
        "default": {},
        "properties": {"x": {"type": "integer", "default": 7}},
    }
    spec["worker"]["properties"]["newLimit"] = {"type": "integer", "default": 5}
    sink = spec["pipeline"]["properties"]["sink"]
    sink["properties"]["parquet"]["properties"]["compression"] = {"type": "string", "default": "snappy"}
    sink["properties"]["kafka"] = {"type": "object", "properties": {"topic": {"type": "string"}}}
    del sink["x-kubernetes-validations"]
    status["newNumber"] = {"type": "integer"}
    status["scaling"]["properties"]["inputs"]["properties"]["newNumber"] = {"type": "integer"}
    status["phase"]["enum"].append("Paused")


def older(spec: Properties, status: Properties) -> None:
    """Fewer fields in spec, status and an item of the status, and one value less of an enumeration."""
    for part in ("properties", "default"):
        del spec["worker"][part]["progressDeadlineSeconds"]
    for name in ("lastProgressTime", "updatedReplicas"):
        del status[name]
    del status["shards"]["items"]["properties"]["readOnly"]
    status["phase"]["enum"].remove("Updating")


async def install(server: Apiserver, on: Stage, wanted: Document) -> None:
    """Returns once the apiserver validates by it: a new schema serves objects a little later."""
    done = server.run("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    schema = wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    is_newer = "newSetting" in schema["spec"]["properties"]
    # The first is known to the newer schema alone, the second one to all but the older.
    probes = {"newSetting": is_newer, "worker.progressDeadlineSeconds": is_newer}

    async def serves() -> bool:
        found = [await asyncio.to_thread(_is_known, server, on.namespace, path) for path in probes]
        return found == list(probes.values())

    await on.until("the schema served", serves)


def _is_known(server: Apiserver, namespace: str, path: str) -> bool:
    first, _, second = path.partition(".")
    value: Document = {first: {second: 5} if second else {"x": 1}}
    strict = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    probe = document(value, name="probe", namespace=namespace)
    return server.run(*strict, text=json.dumps(probe)).returncode == 0


async def uids(on: Stage) -> dict[str, str]:
    pods = await on.kube.list(POD, on.namespace, {})
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


async def revision(on: Stage) -> Revision:
    existing = await on.get(STATEFUL_SET)
    assert existing is not None
    return Revision.parse(existing["metadata"]["annotations"][ANNOTATION_REVISION])


async def reasons(on: Stage) -> set[str]:
    return {one["reason"] for one in await on.kube.list(EVENT, on.namespace, {})}


def test_over_newer_and_older_crds_the_operator_works(apiserver_of_its_own: Standing, tmp_path: Path) -> None:
    """In one test, since the apiserver must be of this test alone: it changes the CRD of all."""
    server = Apiserver(apiserver_of_its_own.kubeconfig)
    over_a_newer_crd(server, tmp_path)
    over_an_older_crd_the_rest_of_the_status_is_reported(server, tmp_path)


def over_a_newer_crd(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await a_newer_crd_and_status_change_nothing(server, on)
        await what_only_a_newer_release_understands_keeps_its_workers_and_its_deletion_policy(on)

    stage(server, tmp_path, story)


async def a_newer_crd_and_status_change_nothing(server: Apiserver, on: Stage) -> None:
    await on.apply({"replicas": 2, "deletionPolicy": "Delete"})
    await on.until_phase("Running", "2/2")
    before, pods = await revision(on), await uids(on)
    await install(server, on, crd(newer))
    stored = await on.get()
    assert stored is not None
    assert (stored["spec"]["newSetting"], stored["spec"]["worker"]["newLimit"]) == ({"x": 7}, 5)
    added = {"newNumber": 1, "phase": "Paused", "scaling": {"inputs": {"newNumber": 2}}}
    patch = ("patch", "lhcg", GROUP, "-n", on.namespace, "--subresource=status", "--type=merge", "-p")
    await asyncio.to_thread(server.must, *patch, json.dumps({"status": added}))
    await on.apply({"replicas": 3, "deletionPolicy": "Delete"})
    await on.until_phase("Running", "3/3")
    assert (await on.condition("Ready"))["status"] == "True"
    after, now = await revision(on), await uids(on)
    assert after.same_workers(before)
    assert pods.items() <= now.items(), "no worker was restarted"
    assert "InvalidSpec" not in await reasons(on)


async def what_only_a_newer_release_understands_keeps_its_workers_and_its_deletion_policy(on: Stage) -> None:
    pods = await uids(on)
    sink = {"pipeline": {"sink": {"parquet": None, "kafka": {"topic": "x"}}}}
    await on.kube.patch(CONSUMER_GROUP, on.namespace, GROUP, {"spec": sink})
    reported = await on.until_reason("Ready", "InvalidSpec")
    assert "spec.pipeline.sink" in reported["message"]
    assert (await on.condition("Stalled"))["status"] == "True"
    assert await uids(on) == pods
    await on.remove()
    await on.until_deleted()
    assert on.client.list_groups(LOGSTORE) == (), "deletionPolicy: Delete"
    assert on.player.stopped_without_leaving == []


def over_an_older_crd_the_rest_of_the_status_is_reported(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await install(server, on, crd(older))
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        status = await on.status()
        assert "lastProgressTime" not in status
        assert {shard["state"] for shard in status["shards"]} == {"already_alloc"}
        assert (await on.condition("Ready"))["status"] == "True"
        await on.apply({"replicas": 2, "pipeline": {"sql": "SELECT 2 AS b FROM logs"}})
        await on.until_reason("Ready", "RollingUpdate")
        await on.until_phase("Running", "2/2")
        assert (await on.condition("Ready"))["status"] == "True"

    stage(server, tmp_path, story)
