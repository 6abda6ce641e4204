"""Invalid values are rejected with a message that names them."""

from typing import Any

import pytest

from tests.charts.chart import Chart, RefusedError, Values, environment, only

# What is wrong, and where helm must report it (its messages differ between versions).
WRONG: dict[str, tuple[Values, str]] = {
    "misspelt": ({"replica": 2}, "replica"),
    "misspelt below": ({"embeddedService": {"storage": {"sise": "1Gi"}}}, "sise"),
    "no operator": ({"replicas": 0}, "replicas"),
    "too many": ({"replicas": 11}, "replicas"),
    "text for a number": ({"replicas": "2"}, "replicas"),
    "one namespace, no list": ({"watchNamespaces": "team-a"}, "watchNamespaces"),
    "no namespace's name": ({"watchNamespaces": ["Team A"]}, "watchNamespaces/0"),
    "a namespace twice": ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
    "no URL": ({"embeddedEndpoint": "loghub.svc"}, "embeddedEndpoint"),
    "key in a URL": ({"embeddedEndpoint": "http://id:key@host"}, "embeddedEndpoint"),
    "no host": ({"allowedHttpHosts": ["http://logs.example.com"]}, "allowedHttpHosts/0"),
    "no client": ({"logServiceClient": "java"}, "logServiceClient"),
    "no digest": ({"image": {"digest": "sha256:abc"}}, "image/digest"),
    "no pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "image/pullPolicy"),
    "resync of nothing": ({"resyncSeconds": 0}, "resyncSeconds"),
    "numbers less often than a status is of use": (
        {"statusIntervalSeconds": 3601},
        "statusIntervalSeconds",
    ),
    "no Secret's name": ({"rbac": {"secretNames": ["*"]}}, "rbac/secretNames/0"),
    "no quantity": ({"resources": {"limits": {"memory": "much"}}}, "resources/limits/memory"),
    "no size": ({"embeddedService": {"storage": {"size": "big"}}}, "embeddedService/storage/size"),
    "no address": (
        {"embeddedService": {"kafka": {"advertisedAddress": "logs.example.com"}}},
        "embeddedService/kafka/advertisedAddress",
    ),
    "no address for Pulsar": (
        {"embeddedService": {"pulsar": {"advertisedAddress": "pulsar://logs.example.com:6650"}}},
        "embeddedService/pulsar/advertisedAddress",
    ),
    "a port for root": ({"embeddedService": {"kafka": {"port": 92}}}, "embeddedService/kafka/port"),
    "no duration": (
        {"metrics": {"serviceMonitor": {"interval": "often"}}},
        "metrics/serviceMonitor/interval",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_value_is_rejected_with_its_path(chart: Chart, wrong: str) -> None:
    values, place = WRONG[wrong]
    with pytest.raises(RefusedError, match=place.replace("/", "[./]")):
        chart.render(values)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({}, "loghub-operator:0.1.0"),
        ({"repository": "example.com:5000/team/op"}, "example.com:5000/team/op:0.1.0"),
        ({"tag": "dev"}, "loghub-operator:dev"),
        ({"tag": "dev", "digest": "sha256:" + "a" * 64}, "loghub-operator@sha256:" + "a" * 64),
    ],
)
def test_the_name_of_an_image_follows_the_values(chart: Chart, image: dict[str, Any], name: str) -> None:
    objects = chart.render({"image": image})
    (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == name
    assert only(objects, "Pod")["spec"]["containers"][0]["image"] == name


@pytest.mark.parametrize(
    ("values", "endpoint"),
    [
        ({}, "http://loghub.svc"),
        ({"embeddedService": {"enabled": True}}, "http://loghub-system.svc"),
        ({"embeddedService": {"enabled": True, "namespace": "logs"}}, "http://logs.svc"),
        (
            {"embeddedEndpoint": "https://10.0.0.7:8443", "embeddedService": {"enabled": True}},
            "https://10.0.0.7:8443",
        ),
    ],
)
def test_embedded_resolves_to_the_service_of_the_release(chart: Chart, values: Values, endpoint: str) -> None:
    variables = environment(only(chart.render(values), "Deployment"))
    assert variables["LOGHUB_EMBEDDED_ENDPOINT"] == endpoint


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, "loghub-service.loghub.svc:8080"),
        ({"embeddedService": {"enabled": True, "name": "logs"}}, "logs.loghub-system.svc:8080"),
        (
            {"embeddedEndpoint": "https://other.svc", "embeddedService": {"name": "logs"}},
            "logs.other.svc:8080",
        ),
        ({"embeddedEndpoint": "https://logs.example.com"}, None),
    ],
)
def test_the_operator_reaches_the_service_at_its_own_service(
    chart: Chart, values: Values, address: str | None
) -> None:
    assert environment(only(chart.render(values), "Deployment")).get("LOGHUB_EMBEDDED_ADDRESS") == address


def test_the_operator_parses_the_settings_of_the_chart(chart: Chart) -> None:
    from loghub_operator.settings import Settings

    values = {
        "watchNamespaces": ["a", "b"],
        "logServiceClient": "sdk",
        "allowedHttpHosts": ["logs.example.com", "*.example.org"],
        "resyncSeconds": 2.5,
        "statusIntervalSeconds": 0,
        "maxProjectServices": 1_000_000,
        "metrics": {"maxShardSeries": 1_000_000},  # helm reads every number as a float
        "worker": {"image": {"tag": "t"}},
    }
    variables = environment(only(chart.render(values), "Deployment"))
    settings = Settings.from_environment({**variables, "LOGHUB_POD_NAME": "pod"})
    assert settings.namespaces == ("a", "b")
    assert settings.client == "sdk"
    assert settings.allowed_http_hosts == ("logs.example.com", "*.example.org")
    assert settings.resync_s == 2.5
    assert settings.status_interval_s == 0
    assert settings.max_shard_series == 1_000_000
    assert settings.max_project_services == 1_000_000
    assert settings.worker_image == "loghub-worker:t"
    assert settings.lease is not None
    assert (settings.lease.namespace, settings.lease.name) == ("loghub-system", "loghub-operator")


def test_unset_values_keep_the_operators_defaults(chart: Chart) -> None:
    variables = environment(only(chart.render(), "Deployment"))
    left = {
        *(
            "LOGHUB_RESYNC_SECONDS",
            "LOGHUB_STATUS_INTERVAL_SECONDS",
            "LOGHUB_MAX_SHARD_SERIES",
            "LOGHUB_WATCH_NAMESPACES",
        ),
        "LOGHUB_MAX_PROJECT_SERVICES",
    }
    assert not left & variables.keys()
    assert not [name for name in variables if "KEDA" in name or "EXTERNAL" in name]


def test_a_single_replica_has_no_disruption_budget(chart: Chart) -> None:
    # It would block every drain of its node forever.
    assert "PodDisruptionBudget" not in {one["kind"] for one in chart.render({"replicas": 1})}
    assert only(chart.render(), "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_the_crd_is_kept_by_default(chart: Chart) -> None:
    metadata = only(chart.render(), "CustomResourceDefinition")["metadata"]
    assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}
    metadata = only(chart.render({"crds": {"keep": False}}), "CustomResourceDefinition")["metadata"]
    assert "annotations" not in metadata
    kinds = {one["kind"] for one in chart.render({"crds": {"install": False}})}
    assert "CustomResourceDefinition" not in kinds
