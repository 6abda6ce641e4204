"""The chart's parts for autoscalers fit what the operator serves."""

from typing import cast

import pytest

from loghub_operator.autoscaling import external_metrics_server
from loghub_operator.autoscaling.external_metrics import AUTHENTICATION_CONFIG_MAP, GROUP, VERSION
from loghub_operator.clients.kube import Kube
from loghub_operator.leader import leader_label
from loghub_operator.leader.leader_label import LeaderLabel
from loghub_operator.settings import Settings
from tests.charts.chart import Chart, Object, Values, environment, kinds, only

ON: Values = {"externalMetrics": {"enabled": True}, "keda": {"enabled": True}}
GIVEN: Values = {
    "externalMetrics": {"enabled": True, "certificateSecret": "one"},
    "keda": {"enabled": True, "certificateSecret": "two"},
    "metrics": {"maxShardSeries": 0},
}


def settings_of(objects: list[Object]) -> Settings:
    return Settings.from_environment({**environment(only(objects, "Deployment")), "LOGHUB_POD_NAME": "pod"})


def value_of(settings: Settings) -> str:
    """What the one that acts labels itself with."""
    assert settings.lease is not None
    return LeaderLabel(kube=cast(Kube, None), lease=settings.lease, pod="pod").value


def mounts(deployment: Object) -> dict[str | None, str]:
    """Names of Secrets by the folder in which they are found."""
    pod = deployment["spec"]["template"]["spec"]
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    result = pod["containers"][0]["volumeMounts"]
    return {one["mountPath"]: secrets[one["name"]] for one in result if one["name"] in secrets}


def test_the_operator_parses_the_autoscaling_settings(chart: Chart) -> None:
    objects = chart.render(GIVEN)
    settings = settings_of(objects)
    assert settings.max_shard_series == 0
    result = mounts(only(objects, "Deployment"))
    assert result == {settings.keda_certs: "two", settings.external_metrics_certs: "one"}


def test_without_configured_certificates_none_are_mounted(chart: Chart) -> None:
    objects = chart.render(ON)
    settings = settings_of(objects)
    assert (settings.keda_certs, settings.external_metrics_certs) == (None, None)
    assert mounts(only(objects, "Deployment")) == {}


@pytest.mark.parametrize("release", ["loghub-operator", "a" * 53])
@pytest.mark.parametrize("part", ["keda", "external-metrics"])
def test_a_service_selects_the_leader_and_its_port(chart: Chart, part: str, release: str) -> None:
    objects = chart.render(ON, release=release)
    deployment = only(objects, "Deployment")
    service = only(objects, "Service", f"{deployment['metadata']['name']}-{part}")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {one["name"]: one["containerPort"] for one in _container(deployment)["ports"]}
    settings = settings_of(objects)
    assert service["spec"]["selector"].items() <= {**labels, leader_label.LABEL: value_of(settings)}.items()
    assert service["spec"]["selector"][leader_label.LABEL] == value_of(settings)
    addresses = {"keda": settings.keda_address, "external-metrics": settings.external_metrics_address}
    (port,) = service["spec"]["ports"]
    assert addresses[part] == f":{ports[port['targetPort']]}"


def test_the_api_service_refers_to_the_operators_service(chart: Chart) -> None:
    objects = chart.render(ON)
    api = only(objects, "APIService")
    assert api["metadata"]["name"] == external_metrics_server.NAME
    assert (api["spec"]["group"], api["spec"]["version"]) == (GROUP, VERSION)
    service = api["spec"]["service"]
    assert f"{service['namespace']}/{service['name']}" == settings_of(objects).external_metrics_service
    assert "caBundle" not in api["spec"]  # the operator writes it; an update of the chart leaves it


def test_the_operator_may_read_the_front_proxy_configuration(chart: Chart) -> None:
    result = only(chart.render(ON), "RoleBinding", "loghub-operator-external-metrics")
    assert result["metadata"]["namespace"] == AUTHENTICATION_CONFIG_MAP[0]
    assert result["roleRef"]["name"] == f"{AUTHENTICATION_CONFIG_MAP[1]}-reader"


def test_autoscaling_is_disabled_by_default(chart: Chart) -> None:
    objects = chart.render()
    assert "APIService" not in kinds(objects)
    settings = settings_of(objects)
    assert (settings.keda_address, settings.external_metrics_address) == (None, None)


def _container(deployment: Object) -> Object:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    result: Object = container
    return result
