"""The volume of each worker of a stateful pipeline, and the settings that go with it."""

import msgspec
import pytest

from loghub_operator.api.status import CheckpointResetStatus
from loghub_operator.model.observed import Placement
from loghub_operator.resources import with_replicas, worker_spec
from loghub_operator.resources.diff import changed_fields
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.support.examples import Document, resource

PLACEMENT = Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=True)


def built(pipeline: Document) -> Document:
    group = resource({"pipeline": pipeline}, uid="uid-1")
    return with_replicas(worker_spec(group, worker_config(group, PLACEMENT), image="i").stateful_set, 1)


def names(document: Document) -> list[str]:
    return [volume["name"] for volume in document["spec"]["template"]["spec"]["volumes"]]


@pytest.mark.parametrize(
    ("volume", "wanted"),
    [
        (None, {"resources": {"requests": {"storage": "10Gi"}}}),
        (
            {"size": "2Gi", "storageClassName": "fast"},
            {"resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "fast"},
        ),
    ],
)
def test_each_worker_with_state_has_a_volume_that_outlives_its_pod(
    volume: Document | None, wanted: Document
) -> None:
    document = built({"stateful": True, "state": volume})
    (claim,) = document["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], **wanted}
    assert claim["metadata"]["name"] not in names(document), "an empty folder would take its place"
    (container,) = document["spec"]["template"]["spec"]["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    variables = {one["name"]: one.get("value", "") for one in container["env"]}
    assert variables["LOGHUB_STATE_DIR"].startswith(f"{mounted[claim['metadata']['name']]}/")
    assert document["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Retain",
    }


def test_without_state_the_folder_is_the_pods_own() -> None:
    document = built({})
    assert "state" in names(document)
    assert (
        document["spec"].keys().isdisjoint({"volumeClaimTemplates", "persistentVolumeClaimRetentionPolicy"})
    )


def test_what_the_apiserver_adds_to_the_claim_is_no_drift() -> None:
    ours = built({"stateful": True, "state": {"size": "1Gi"}})
    theirs = msgspec.json.decode(msgspec.json.encode(ours))
    (claim,) = theirs["spec"]["volumeClaimTemplates"]
    claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
    claim["metadata"]["creationTimestamp"] = None
    claim["spec"]["volumeMode"] = "Filesystem"
    assert changed_fields(ours, theirs) == ()


def test_the_last_reset_is_among_the_settings_of_a_pipeline_with_state_only() -> None:
    reset = {"to": "Begin", "nonce": "n1"}
    done = CheckpointResetStatus(nonce="n0", phase="Succeeded", last_transition_time="2026-01-31T08:00:00Z")

    def settings(stateful: bool, wanted: Document | None) -> str:
        group = resource({"pipeline": {"stateful": stateful}, "resetCheckpoints": wanted})
        status = group.status.model_copy(update={"checkpoint_reset": done})
        return worker_config(group.model_copy(update={"status": status}), PLACEMENT).reset

    assert settings(True, reset) == "n0", "an order that was not executed changes nothing"
    assert settings(True, None) == "n0", "a manifest without it changes nothing"
    assert settings(False, reset) == ""
