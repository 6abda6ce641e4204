"""The rendered objects are valid for the real apiserver.

Each combination of toggles is rendered and applied by a server-side dry run into a namespace that enforces
the restricted pod security standard: unknown fields are rejected, and there is no warning.
"""

import json

import pytest

from tests.charts.chart import Chart, Object, RefusedError, as_list
from tests.charts.toggles import TOGGLES
from tests.loghub_operator.support.apiserver import Apiserver

# Kinds of the Prometheus operator and KEDA, which the test's apiserver does not have.
FOREIGN = ("monitoring.coreos.com/", "keda.sh/")
HOME = "chart-home"
NAMESPACES = (HOME, "chart-team-a", "chart-team-b", "loghub")
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "APIService",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
}


@pytest.fixture(scope="module")
def restricted(server: Apiserver) -> Apiserver:
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
        for name in NAMESPACES
    ]
    done = server.run("apply", "--server-side", "-f", "-", text=as_list(spaces))
    assert done.returncode == 0, done.stderr
    return server


def known(objects: list[Object]) -> list[Object]:
    return [one for one in objects if not one["apiVersion"].startswith(FOREIGN)]


@pytest.mark.parametrize(
    "toggles", ["defaults", "placed and named", "numbers, certificates given", "monitoring"]
)
def test_helm_lint_finds_nothing(chart: Chart, toggles: str) -> None:
    assert "0 chart(s) failed" in chart.lint(TOGGLES[toggles])


def test_the_apiserver_accepts_every_object_without_a_warning(chart: Chart, restricted: Apiserver) -> None:
    """Of all combinations at once, since a call of kubectl costs more than what it asks."""
    rendered = {name: known(chart.render(values, namespace=HOME)) for name, values in TOGGLES.items()}
    different = {
        json.dumps(one, sort_keys=True): one
        for name, objects in rendered.items()
        for one in objects
        # One check of it is enough: the apiserver compiles all its rules.
        if name == "defaults" or one["kind"] != "CustomResourceDefinition"
    }
    objects = list(different.values())
    arguments = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
    )
    done = restricted.run(*arguments, text=as_list(objects))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(objects)


def pods_of(objects: list[Object]) -> list[Object]:
    """Every pod that the chart makes, by itself or through a controller."""
    objects_ = []
    for one in objects:
        if one["kind"] == "Pod":
            objects_.append({**one, "metadata": {**one["metadata"]}})
        elif "template" in one.get("spec", {}):
            metadata = {"name": one["metadata"]["name"], "namespace": one["metadata"]["namespace"]}
            objects_.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata,
                    "spec": one["spec"]["template"]["spec"],
                }
            )
    return objects_


@pytest.mark.parametrize("toggles", ["service", "service elsewhere"])
def test_the_pods_comply_with_the_restricted_security_standard(
    chart: Chart, restricted: Apiserver, toggles: str
) -> None:
    # Controllers only warn; the pods themselves are what is refused.
    pods = pods_of(chart.render(TOGGLES[toggles], namespace=HOME))
    assert len(pods) == 3
    for pod in pods:
        pod["spec"]["volumes"] = pod["spec"].get("volumes", []) + [
            {"name": claim, "emptyDir": {}} for claim in ("data",) if _mounts(pod, claim)
        ]
    arguments = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    done = restricted.run(*arguments, text=as_list(pods))
    assert (done.returncode, done.stderr) == (0, "")


def _mounts(pod: Object, volume: str) -> bool:
    mounts = [mount for one in pod["spec"]["containers"] for mount in one.get("volumeMounts", [])]
    return volume in {mount["name"] for mount in mounts}


def test_a_pod_that_does_not_comply_is_rejected(chart: Chart, restricted: Apiserver) -> None:
    """Else the test above could not fail."""
    (pod,) = [
        one for one in pods_of(chart.render(namespace=HOME)) if one["metadata"]["name"] == "loghub-operator"
    ]
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    done = restricted.run("create", "--dry-run=server", "-f", "-", text=json.dumps(pod))
    assert "violates PodSecurity" in done.stderr


@pytest.mark.parametrize("toggles", TOGGLES)
def test_every_object_has_a_namespace_and_labels(chart: Chart, toggles: str) -> None:
    for one in chart.render(TOGGLES[toggles], namespace=HOME):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "loghub-operator"
        assert labels["app.kubernetes.io/part-of"] == "loghub"
        assert ("namespace" in one["metadata"]) != (one["kind"] in CLUSTER_WIDE), one["metadata"]["name"]


def test_two_releases_share_no_object(chart: Chart) -> None:
    first = chart.render({"watchNamespaces": ["a"]}, release="one", namespace="x")
    second = chart.render(
        {"watchNamespaces": ["a"], "crds": {"install": False}}, release="two", namespace="x"
    )

    def names(objects: list[Object]) -> set[tuple[str, str, str]]:
        return {
            (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects
        }

    assert not names(first) & names(second)


def test_names_fit_for_release_names_of_any_length(chart: Chart) -> None:
    for one in chart.render({"embeddedService": {"enabled": True}}, release="r" * 53):
        assert len(one["metadata"]["name"]) <= 63


def test_helm_reports_the_position_of_a_template_error(chart: Chart) -> None:
    """The runner sees helm's failures."""
    with pytest.raises(RefusedError, match="release name"):
        chart.render(release="Not_A_Name")


def test_what_a_pod_keeps_on_its_node_is_requested_and_bounded(chart: Chart) -> None:
    """Without a request a quota on ephemeral storage refuses the pod; without a limit it can fill a node."""
    pods = [
        one["spec"]["template"]["spec"]
        for one in chart.render(TOGGLES["service"])
        if one["kind"] in ("Deployment", "StatefulSet")
    ]
    assert len(pods) == 2
    for pod in pods:
        for container in pod["containers"]:
            assert "ephemeral-storage" in container["resources"]["requests"]
        folders = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
        assert folders
        assert all("sizeLimit" in folder for folder in folders)
