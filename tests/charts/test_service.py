"""The embedded service as the chart runs it: its arguments, its probes, and TLS."""

import json
from typing import Any

import pytest

from loghub_service.__main__ import parse
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.limit_flags import flags_of
from loghub_service.settings import KafkaLimits, ServiceSettings
from tests.charts.chart import Chart, Object, RefusedError, Values, environment, only
from tests.charts.toggles import KAFKA, KAFKA_TLS, SERVICE, TLS
from tests.support import ROOT


def container(objects: list[Object]) -> dict[str, Any]:
    (result,) = only(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(result, dict)
    return result


def settings(objects: list[Object]) -> ServiceSettings:
    return parse(container(objects)["args"])


def ports(objects: list[Object]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(objects)["ports"]}


def mounts(objects: list[Object]) -> dict[str, str]:
    """Where which Secret is mounted."""
    volumes = only(objects, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    secrets = {one["name"]: one["secret"]["secretName"] for one in volumes if "secret" in one}
    return {
        mount["mountPath"]: secrets[mount["name"]]
        for mount in container(objects)["volumeMounts"]
        if mount["name"] in secrets
    }


def test_without_tls_the_endpoint_is_plain_http(chart: Chart) -> None:
    objects = chart.render(SERVICE)
    assert (settings(objects).tls_certificate, settings(objects).tls_key) == (None, None)
    assert mounts(objects) == {"/etc/loghub/credentials": "loghub-credentials"}
    endpoint = environment(only(objects, "Deployment"))["LOGHUB_EMBEDDED_ENDPOINT"]
    assert endpoint == "http://loghub-system.svc"


def test_with_tls_the_service_reads_the_secret_and_the_endpoint_is_https(chart: Chart) -> None:
    objects = chart.render(TLS)
    assert settings(objects).tls_certificate == "/etc/loghub/tls/tls.crt"
    assert settings(objects).tls_key == "/etc/loghub/tls/tls.key"
    assert mounts(objects)["/etc/loghub/tls"] == "loghub-tls"
    endpoint = environment(only(objects, "Deployment"))["LOGHUB_EMBEDDED_ENDPOINT"]
    assert endpoint == "https://loghub-system.svc"
    assert "https://loghub-system.svc" in chart.notes(TLS)
    assert "demo.loghub-system.svc" in chart.notes(TLS)


def test_an_endpoint_that_is_given_is_kept(chart: Chart) -> None:
    values: Values = TLS | {"embeddedEndpoint": "http://other.svc"}
    assert environment(only(chart.render(values), "Deployment"))["LOGHUB_EMBEDDED_ENDPOINT"] == (
        "http://other.svc"
    )


def test_kafka_clients_are_served_only_if_they_are_wanted(chart: Chart) -> None:
    objects = chart.render(SERVICE)
    assert settings(objects).kafka is None
    assert "kafka" not in ports(objects)
    assert "Kafka" not in chart.notes(SERVICE)


@pytest.mark.parametrize(
    ("values", "port", "advertised"),
    [
        (KAFKA, 9092, ("loghub-service.loghub-system.svc", 9092)),
        (KAFKA_TLS, 19092, ("logs.example.com", 443)),
    ],
    ids=["plain", "TLS"],
)
def test_kafka_clients_reach_the_container_through_the_service_and_get_its_name(
    chart: Chart, values: Values, port: int, advertised: tuple[str, int]
) -> None:
    objects = chart.render(values)
    kafka = settings(objects).kafka
    assert kafka is not None
    assert (kafka.host, kafka.port, kafka.advertised) == ("", port, advertised)
    assert ports(objects)["kafka"] == port
    (of_service,) = [
        one
        for one in only(objects, "Service", "loghub-service")["spec"]["ports"]
        if one["targetPort"] == "kafka"
    ]
    assert of_service["port"] == port
    notes = " ".join(chart.notes(values).split())
    protocol = "SASL_SSL" if "tls" in values["embeddedService"] else "SASL_PLAINTEXT"
    assert f"Kafka clients reach it at {advertised[0]}:{advertised[1]}, with {protocol}" in notes


def test_each_limit_of_kafka_clients_has_a_value_with_the_bounds_of_its_flag(chart: Chart) -> None:
    """The description of a value names the flag."""
    service = json.loads((ROOT / "charts/loghub-operator/values.schema.json").read_text())["properties"][
        "embeddedService"
    ]
    of_values = service["properties"]["kafka"]["properties"]["limits"]["properties"]
    by_name = {flag.name: flag for flag in flags_of(KafkaLimits) + flags_of(KafkaGroupLimits)}
    flags = {name: by_name[of["description"].split()[2]] for name, of in of_values.items()}
    assert set(by_name) == {flag.name for flag in flags.values()}
    bounds = {name: (of["minimum"], of["maximum"]) for name, of in of_values.items()}
    assert bounds == {name: (flag.minimum, flag.maximum) for name, flag in flags.items()}
    limits = {name: flag.default + 1 for name, flag in flags.items()}
    kafka = {"enabled": True, "plaintext": True, "limits": limits}
    chosen = settings(chart.render({"embeddedService": {"enabled": True, "kafka": kafka}}))
    owners = {type(one): one for one in (chosen.kafka_limits, chosen.kafka_groups)}
    for name, flag in flags.items():
        assert getattr(owners[flag.owner], flag.fields[0]) == limits[name] * flag.unit


def test_kafka_clients_do_not_send_their_secret_in_clear_unless_that_is_said(chart: Chart) -> None:
    with pytest.raises(RefusedError, match=r"tls\.secretName, since Kafka clients send their secret"):
        chart.render({"embeddedService": {"enabled": True, "kafka": {"enabled": True}}})


@pytest.mark.parametrize("port", [8080, 9404])
def test_the_kafka_endpoint_has_a_port_of_its_own(chart: Chart, port: int) -> None:
    kafka = {"enabled": True, "plaintext": True, "port": port}
    with pytest.raises(RefusedError, match=f"kafka.port: the service uses {port} for something else"):
        chart.render({"embeddedService": {"enabled": True, "kafka": kafka}})


@pytest.mark.parametrize("values", [SERVICE, TLS], ids=["plain", "TLS"])
def test_the_probes_use_the_admin_port(chart: Chart, values: Values) -> None:
    """It has no TLS, and is not what clients flood."""
    served = container(chart.render(values))
    numbers = {port["name"]: port["containerPort"] for port in served["ports"]}
    address = parse(served["args"]).admin
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = served[probe]["httpGet"]
        assert (get["path"], "scheme" in get) == ("/healthz", False)
        assert address == ("", numbers[get["port"]])
