"""A pod template is merged like a strategic merge patch; fields that membership depends on are kept."""

import uuid
from typing import Any

import pytest

from loghub.contract import worker as contract
from loghub_operator.api.labels import ANNOTATION_REVISION
from loghub_operator.model.observed import Placement
from loghub_operator.model.revision import Revision
from loghub_operator.resources import with_replicas, worker_spec
from loghub_operator.resources.statefulset import GRACE_S
from loghub_operator.resources.strategic_merge import merged
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, resource

PLACEMENT = Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=True)


def pod(overlay: Document | None) -> Document:
    """The pod template of a group with this overlay."""
    group = resource({"worker": {"podTemplate": overlay}} if overlay else None, uid="uid-1")
    template_ = with_replicas(worker_spec(group, worker_config(group, PLACEMENT), image="i").stateful_set, 1)
    template: Document = template_["spec"]["template"]
    return template


def worker(template: Document) -> Document:
    container: Document = next(one for one in template["spec"]["containers"] if one["name"] == "worker")
    return container


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        (
            {"volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "state", "ephemeral": {"volumeClaimTemplate": {}}}]},
            {"volumes": [{"name": "state", "ephemeral": {"volumeClaimTemplate": {}}}]},
        ),
        (
            {"volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "state", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "state", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}]},
        ),
        (
            {"readinessProbe": {"httpGet": {"path": "/ready", "port": 1}, "periodSeconds": 5}},
            {"readinessProbe": {"tcpSocket": {"port": 2}}},
            {"readinessProbe": {"tcpSocket": {"port": 2}, "periodSeconds": 5}},
        ),
        (
            {"readinessProbe": {"httpGet": {"path": "/ready", "port": 1}}},
            {"readinessProbe": {"httpGet": {"port": 2}, "periodSeconds": 9}},
            {"readinessProbe": {"httpGet": {"path": "/ready", "port": 2}, "periodSeconds": 9}},
        ),
        (
            {"lifecycle": {"preStop": {"exec": {"command": ["a"]}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
            {"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
        ),
        ({"args": ["a"]}, {"args": ["b", "c"]}, {"args": ["b", "c"]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": []}, {"tolerations": []}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "C", "value": "3"}, {"name": "A", "value": "9"}]},
            {"env": [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "a"}]},
            {"volumeMounts": [{"mountPath": "/a", "readOnly": True}, {"mountPath": "/b", "name": "b"}]},
            {
                "volumeMounts": [
                    {"mountPath": "/a", "name": "a", "readOnly": True},
                    {"mountPath": "/b", "name": "b"},
                ]
            },
        ),
        (
            {"volumes": [{"name": "tmp", "emptyDir": {}}]},
            {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]},
        ),
        (
            {"ports": [{"containerPort": 1, "name": "a"}]},
            {"ports": [{"containerPort": 2, "name": "b"}]},
            {"ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "b"}]},
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "$patch": "delete"}]},
            {"volumes": [{"name": "b", "emptyDir": {}}]},
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "$patch": "replace", "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]},
        ),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
        ({"a": {"x": 1}, "b": 2}, {"a": {"$patch": "replace", "y": 3}}, {"a": {"y": 3}, "b": 2}),
        ({"a": {"x": 1}, "b": 2}, {"a": {"$patch": "delete"}}, {"a": {}, "b": 2}),
        ({"b": 2}, {"a": {"$patch": "replace", "y": 3}}, {"a": {"y": 3}, "b": 2}),
        (
            {"ports": [{"containerPort": 53, "name": "a"}]},
            {"ports": [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]},
            {
                "ports": [
                    {"containerPort": 53, "name": "a", "protocol": "TCP"},
                    {"containerPort": 53, "protocol": "UDP"},
                ]
            },
        ),
        (
            {"containers": [{"name": "worker"}]},
            {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]},
            {"containers": [{"name": "worker"}, {"name": "a", "image": "1"}, {"name": "a", "image": "2"}]},
        ),
    ],
)
def test_overlay_and_template_are_merged(ours: Document, theirs: Document, both: Document) -> None:
    assert merged(ours, theirs) == both


def test_no_overlay_changes_nothing() -> None:
    assert pod(None) == pod({})


def test_a_sidecar_and_a_node_selector_are_added() -> None:
    sidecar = {"name": "shipper", "image": "s"}
    template_ = pod({"spec": {"containers": [sidecar], "nodeSelector": {"disk": "fast"}}})
    assert [one["name"] for one in template_["spec"]["containers"]] == ["worker", "shipper"]
    assert template_["spec"]["nodeSelector"] == {"disk": "fast"}
    assert worker(template_) == worker(pod(None))


def test_the_workers_probe_and_scratch_volumes_may_be_changed() -> None:
    changed = {"name": "worker", "livenessProbe": {"failureThreshold": 9}}
    template_ = pod(
        {"spec": {"containers": [changed], "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]}}
    )
    assert worker(template_)["livenessProbe"]["failureThreshold"] == 9
    volumes = {one["name"]: one for one in template_["spec"]["volumes"]}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_fields_that_group_membership_depends_on_cannot_be_overridden() -> None:
    ours = pod(None)
    environment = [
        {"name": contract.ENV_CONSUMER, "value": "another-client"},
        {"name": contract.ENV_CONFIG, "$patch": "delete"},
        {"name": "MINE", "value": "1"},
    ]
    mounts = [{"mountPath": "/etc/loghub/pod", "name": "elsewhere"}]
    container = {"name": "worker", "env": environment, "volumeMounts": mounts}
    overlay: dict[str, Any] = {
        "metadata": {
            "name": "x",
            "labels": {"app.kubernetes.io/instance": "x", "team": "a"},
            "annotations": {
                contract.DRAIN_ANNOTATION: contract.DRAIN_REQUESTED,
                ANNOTATION_REVISION: "another",
            },
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "pod", "$patch": "replace", "emptyDir": {}}],
        },
    }
    template_ = pod(overlay)
    assert template_["metadata"]["labels"] == {**ours["metadata"]["labels"], "team": "a"}
    annotations, unchanged = template_["metadata"]["annotations"], ours["metadata"]["annotations"]
    assert annotations[contract.DRAIN_ANNOTATION] == contract.DRAIN_NOT_REQUESTED
    assert annotations.keys() == unchanged.keys()
    revision, before = Revision.parse(annotations[ANNOTATION_REVISION]), unchanged[ANNOTATION_REVISION]
    assert revision.settings == Revision.parse(before).settings
    assert revision.pod_template != Revision.parse(before).pod_template, "the overlay replaces the pods"
    assert "name" not in template_["metadata"]
    assert template_["spec"]["terminationGracePeriodSeconds"] == GRACE_S
    assert template_["spec"]["automountServiceAccountToken"] is False
    assert worker(template_)["env"] == [*worker(ours)["env"], {"name": "MINE", "value": "1"}]
    assert worker(template_)["volumeMounts"] == worker(ours)["volumeMounts"]
    assert [one for one in template_["spec"]["volumes"] if one["name"] == "pod"] == [
        one for one in ours["spec"]["volumes"] if one["name"] == "pod"
    ]


def test_a_longer_grace_period_and_a_requested_token_are_accepted() -> None:
    template_ = pod({"spec": {"terminationGracePeriodSeconds": 600, "automountServiceAccountToken": True}})
    assert template_["spec"]["terminationGracePeriodSeconds"] == 600
    assert template_["spec"]["automountServiceAccountToken"] is True


@pytest.mark.parametrize(
    "overlay",
    [
        {"spec": 5},
        {"spec": None},
        {"metadata": "x"},
        {"spec": {"containers": None}},
        {"spec": {"containers": 7}},
        {"spec": {"containers": [7, {"image": "unnamed"}]}},
        {"spec": {"volumes": "x"}},
        {"spec": {"containers": [{"name": "worker", "env": "x"}]}},
        {"spec": {"containers": [{"name": "worker", "$patch": "delete"}]}},
        {"spec": {"volumes": [{"name": {}}]}},
        {"spec": {"containers": [{"name": "worker", "env": [{"name": []}]}]}},
        {"spec": {"terminationGracePeriodSeconds": "long"}},
        {"spec": {"containers": [{"name": "worker"}, {"name": "worker"}]}},
    ],
)
def test_an_invalid_overlay_is_left_to_the_apiserver_to_reject(overlay: Document) -> None:
    assert pod(overlay)


SIDECAR: Document = {"name": "shipper", "image": "s"}
MOUNT: Document = {"mountPath": "/x", "name": "tmp"}
SPREAD: Document = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
TWICE: dict[str, Document] = {
    "containers": {"containers": [SIDECAR, SIDECAR]},
    "initContainers": {"initContainers": [SIDECAR, SIDECAR]},
    "volumes": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "hostPath": {"path": "/x"}}]},
    "env": {"containers": [{**SIDECAR, "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]},
    "volumeMounts": {"containers": [{"name": "worker", "volumeMounts": [MOUNT, {**MOUNT, "name": "state"}]}]},
    "ports": {"containers": [{**SIDECAR, "ports": [{"containerPort": 53}, {"containerPort": 53}]}]},
    "hostAliases": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": [one]} for one in ("a", "b")]},
    "topologySpreadConstraints": {"topologySpreadConstraints": [SPREAD, {**SPREAD, "maxSkew": 2}]},
}


def applied(overlay: Document, server: Apiserver) -> str:
    metadata = {"uid": "uid-1", "name": f"o-{uuid.uuid4().hex[:8]}"}
    group = resource({"worker": {"podTemplate": {"spec": overlay}}}, **metadata)
    return server.apply(
        with_replicas(worker_spec(group, worker_config(group, PLACEMENT), image="i").stateful_set, 0)
    )


@pytest.mark.parametrize("field", TWICE)
def test_the_apiserver_rejects_duplicate_names_and_names_the_field(field: str, server: Apiserver) -> None:
    refused = applied(TWICE[field], server)
    assert field in refused
    assert "uplicate" in refused  # some of its sentences begin with it


def test_items_that_differ_in_the_rest_of_their_key_are_accepted(server: Apiserver) -> None:
    ports = [{"containerPort": 53, "protocol": one} for one in ("TCP", "UDP")]
    spread = [{**SPREAD, "whenUnsatisfiable": one} for one in ("DoNotSchedule", "ScheduleAnyway")]
    overlay = {"containers": [{**SIDECAR, "ports": ports}], "topologySpreadConstraints": spread}
    assert applied(overlay, server) == ""


@pytest.mark.parametrize("name", ["state", "tmp"])
def test_scratch_space_may_be_a_volume_of_another_kind(name: str) -> None:
    claim = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    volume = {"name": name, "ephemeral": claim}
    assert volume in pod({"spec": {"volumes": [volume]}})["spec"]["volumes"]
