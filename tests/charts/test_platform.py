"""Values that fit the release to a platform: users that the platform assigns, IP families, registries,
proxies and private certificate authorities, and places.
"""

from typing import Any

import pytest
import yaml

from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings
from tests.charts.chart import Chart, Object, RefusedError, Values, as_list, environment, only
from tests.charts.test_objects import (
    CLUSTER_WIDE,
    HOME,
    pods_of,
    restricted,  # noqa: F401 - fixture
)
from tests.charts.toggles import EXTRA
from tests.loghub_operator.resources.test_builders import PLACEMENT
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import resource
from tests.support import ROOT

ASSIGNED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
PAGE = (ROOT / "docs" / "openshift.md").read_text(encoding="utf-8")
OPENSHIFT: Values = yaml.safe_load(PAGE.split("```\n")[1])
PROGRAMS = (("Deployment", "loghub-operator"), ("StatefulSet", "loghub-service"))


def pod_spec(objects: list[Object], kind: str, name: str = "") -> dict[str, Any]:
    result: dict[str, Any] = only(objects, kind, name)["spec"]["template"]["spec"]
    return result


def settings_of(objects: list[Object]) -> Settings:
    variables = environment(only(objects, "Deployment"))
    return Settings.from_environment({**variables, "LOGHUB_POD_NAME": "pod"})


def worker_pod(objects: list[Object]) -> Object:
    """A pod of the workers that the operator of these objects makes."""
    group = resource()
    config = worker_config(group, PLACEMENT)
    spec = worker_spec(group, config, image="i", defaults=settings_of(objects).worker_defaults)
    template = spec.stateful_set["spec"]["template"]
    metadata = {**template["metadata"], "name": "access-0", "namespace": HOME}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_a_user_that_the_platform_assigns(chart: Chart, restricted: Apiserver) -> None:  # noqa: F811
    """As OpenShift's restricted-v2 does: no pod names a user or group, and each passes as restricted."""
    objects = chart.render(OPENSHIFT, namespace=HOME)
    pods = [*pods_of(objects), worker_pod(objects)]
    assert len(pods) == 4
    for pod in pods:
        assert pod["spec"]["securityContext"].keys() - ASSIGNED.keys() <= {"fsGroupChangePolicy"}
        for container in pod["spec"]["containers"]:
            assert not container["securityContext"].keys() & {"runAsUser", "runAsGroup"}
        if pod["metadata"]["name"] == "loghub-service":
            pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
    done = restricted.run("create", "--dry-run=server", "--validate=strict", "-f", "-", text=as_list(pods))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_security_context_can_be_removed(chart: Chart) -> None:
    values = {
        "podSecurityContext": None,
        "securityContext": None,
        "embeddedService": {"enabled": True, "podSecurityContext": None, "securityContext": None},
    }
    objects = chart.render(values)
    for kind, name in PROGRAMS:
        spec = pod_spec(objects, kind, name)
        assert "securityContext" not in spec
        assert "securityContext" not in spec["containers"][0]


def test_a_field_of_a_security_context_can_be_changed(chart: Chart) -> None:
    objects = chart.render(
        {"podSecurityContext": {"runAsUser": 7}, "securityContext": {"readOnlyRootFilesystem": False}}
    )
    spec = pod_spec(objects, "Deployment")
    assert spec["securityContext"]["runAsUser"] == 7
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is False


def test_services_have_the_ip_family_policy(chart: Chart) -> None:
    values = {
        "ipFamilyPolicy": "PreferDualStack",
        "embeddedService": {"enabled": True},
        "keda": {"enabled": True},
        "externalMetrics": {"enabled": True},
    }
    objects = chart.render(values)
    services = [one["spec"] for one in objects if one["kind"] == "Service"]
    assert [one["ipFamilyPolicy"] for one in services] == ["PreferDualStack"] * 4
    assert settings_of(objects).worker_defaults.ip_family_policy == "PreferDualStack"
    without = chart.render({**values, "ipFamilyPolicy": ""})
    assert not [one for one in without if "ipFamilyPolicy" in one.get("spec", {})]


def test_programs_listen_on_addresses_of_every_family(chart: Chart) -> None:
    objects = chart.render(
        {part: {"enabled": True} for part in ("embeddedService", "keda", "externalMetrics")}
    )
    settings = settings_of(objects)
    assert settings.http_address == ":8081"
    assert (settings.keda_address, settings.external_metrics_address) == (":9090", ":8443")
    assert "--listen=:8080" in pod_spec(objects, "StatefulSet")["containers"][0]["args"]
    assert {"name": "LOGHUB_METRICS_ADDRESS", "value": ":9404"} in worker_pod(objects)["spec"]["containers"][
        0
    ]["env"]


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_variables_and_volumes_are_added(chart: Chart, kind: str, name: str) -> None:
    values: Values = {"embeddedService": {"enabled": True, **EXTRA}, **EXTRA}
    spec = pod_spec(chart.render(values), kind, name)
    (container,) = spec["containers"]
    assert EXTRA["extraEnv"][0] in container["env"]
    assert EXTRA["extraVolumeMounts"][0] in container["volumeMounts"]
    assert EXTRA["extraVolumes"][0] in spec["volumes"]


def test_arguments_are_added_to_the_service(chart: Chart) -> None:
    values = {"embeddedService": {"enabled": True, "extraArgs": ["--segment-mib=64"]}}
    assert pod_spec(chart.render(values), "StatefulSet")["containers"][0]["args"][-1] == "--segment-mib=64"


def test_log_level_annotations_and_spread(chart: Chart) -> None:
    zones = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    objects = chart.render(
        {
            "logLevel": "debug",
            "deploymentAnnotations": {"note": "x"},
            "topologySpreadConstraints": [zones, {**zones, "labelSelector": {"matchLabels": {"a": "b"}}}],
        }
    )
    assert settings_of(objects).log_level == "debug"
    deployment = only(objects, "Deployment")
    assert deployment["metadata"]["annotations"] == {"note": "x"}
    ours, own = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert ours == {**zones, "labelSelector": deployment["spec"]["selector"]}
    assert own["labelSelector"] == {"matchLabels": {"a": "b"}}
    assert "topologySpreadConstraints" not in pod_spec(
        chart.render({"topologySpreadConstraints": []}), "Deployment"
    )


def test_a_namespace_that_is_not_the_releases(chart: Chart) -> None:
    values = {
        "namespaceOverride": "elsewhere",
        "embeddedService": {"enabled": True},
        "externalMetrics": {"enabled": True},
        "keda": {"enabled": True},
        "networkPolicy": {"enabled": True},
    }
    objects = chart.render(values)
    text = as_list(objects)
    assert "loghub-system" not in text
    spaces = {one["metadata"].get("namespace") for one in objects if one["kind"] not in CLUSTER_WIDE}
    assert spaces == {"elsewhere", "kube-system"}
    assert settings_of(objects).embedded_endpoint == "http://elsewhere.svc"
    assert "-n elsewhere " in chart.notes(values)


def test_a_registry_for_all_images(chart: Chart) -> None:
    objects = chart.render(
        {"global": {"imageRegistry": "registry.example.com/m"}, "embeddedService": {"enabled": True}}
    )
    for kind, name in PROGRAMS:
        (container,) = pod_spec(objects, kind, name)["containers"]
        assert container["image"] == f"registry.example.com/m/{name}:0.1.0"
    assert settings_of(objects).worker_image == "registry.example.com/m/loghub-worker:0.1.0"
    assert only(objects, "Pod")["spec"]["containers"][0]["image"].startswith("registry.example.com/m/")


def test_the_platforms_pod_template_reaches_the_workers(chart: Chart) -> None:
    template = {
        "metadata": {"labels": {"team": "logs"}},
        "spec": {"imagePullSecrets": [{"name": "registry"}], "tolerations": [{"operator": "Exists"}]},
    }
    objects = chart.render({"worker": {"podTemplate": template}})
    assert settings_of(objects).worker_defaults.pod_template == template
    pod = worker_pod(objects)
    assert pod["metadata"]["labels"]["team"] == "logs"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "LOGHUB_WORKER_POD_TEMPLATE" not in environment(only(chart.render(), "Deployment"))


def test_the_notes_say_how_a_kept_crd_is_taken_over(chart: Chart) -> None:
    assert "--take-ownership" in chart.notes()
    assert "--take-ownership" not in chart.notes({"crds": {"keep": False}})


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"logLevel": "loud"}, "logLevel"),
        ({"ipFamilyPolicy": "Dual"}, "ipFamilyPolicy"),
        ({"namespaceOverride": "A B"}, "namespaceOverride"),
        ({"worker": {"podTemplate": {"replicas": 2}}}, "podTemplate"),
        ({"extraEnv": [{"value": "x"}]}, "extraEnv/0"),
        ({"embeddedService": {"extraArgs": "--x"}}, "embeddedService/extraArgs"),
        ({"global": {"imageRegistry": "https://registry"}}, "global/imageRegistry"),
    ],
)
def test_invalid_values_of_a_platform_are_rejected(chart: Chart, values: Values, place: str) -> None:
    with pytest.raises(RefusedError, match=place.replace("/", "[./]")):
        chart.render(values)


@pytest.mark.parametrize(("kind", "name"), PROGRAMS)
def test_a_volume_and_a_mount_of_the_charts_own_are_not_given_twice(
    chart: Chart, kind: str, name: str
) -> None:
    """Also those that it only has with other values: what is switched on later must not break the release.
    The API server would refuse the pods, with the rest of the release applied."""
    certificate = {"enabled": True, "certificateSecret": "c"}
    all_on: Values = {
        "externalMetrics": certificate,
        "keda": certificate,
        "embeddedService": {"enabled": True, "tls": {"secretName": "s"}},
    }
    spec = pod_spec(chart.render(all_on), kind, name)
    mounts = spec["containers"][0]["volumeMounts"]
    assert len(mounts) >= 3
    for mount in mounts:
        for key, wrong in (
            ("name", {"extraVolumes": [{"name": mount["name"], "emptyDir": {}}]}),
            ("mountPath", {"extraVolumeMounts": [{"name": "x", "mountPath": mount["mountPath"]}]}),
        ):
            values = wrong if kind == "Deployment" else {"embeddedService": {"enabled": True, **wrong}}
            with pytest.raises(RefusedError, match=f"{mount[key]} is there twice: the chart sets it"):
                chart.render(values)
