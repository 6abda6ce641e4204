"""The embedded service as the chart runs it: its arguments, its probes, and TLS."""

import json
from typing import Any

import pytest

from loghub_service.__main__ import parse
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.limit_flags import flags_of
from loghub_service.settings import KafkaLimits, PulsarLimits, ServiceSettings
from tests.charts.chart import Chart, Object, RefusedError, Values, environment, only
from tests.charts.toggles import KAFKA, KAFKA_TLS, PULSAR, PULSAR_TLS, SERVICE, TLS
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


def test_clients_of_other_protocols_are_served_only_if_they_are_wanted(chart: Chart) -> None:
    objects = chart.render(SERVICE)
    assert (settings(objects).kafka, settings(objects).pulsar) == (None, None)
    assert ports(objects).keys() == {"http", "admin"}
    notes = chart.notes(SERVICE)
    assert ("Kafka" in notes, "Pulsar" in notes) == (False, False)


KAFKA_WORDS = "Kafka clients reach it at {address}, with {protocol}"
PULSAR_WORDS = "Pulsar clients reach it at {protocol}://{address}, with the token"


@pytest.mark.parametrize(
    ("values", "name", "port", "advertised", "words"),
    [
        (KAFKA, "kafka", 9092, "loghub-service.loghub-system.svc:9092", KAFKA_WORDS),
        (KAFKA_TLS, "kafka", 19092, "logs.example.com:443", KAFKA_WORDS),
        (PULSAR, "pulsar", 6650, "loghub-service.loghub-system.svc:6650", PULSAR_WORDS),
        (PULSAR_TLS, "pulsar", 16650, "logs.example.com:6651", PULSAR_WORDS),
        (PULSAR_TLS, "kafka", 9092, "loghub-service.loghub-system.svc:9092", KAFKA_WORDS),
    ],
    ids=["Kafka, plain", "Kafka, TLS", "Pulsar, plain", "Pulsar, TLS", "Kafka and Pulsar"],
)
def test_clients_reach_the_container_through_the_service_and_get_its_name(
    chart: Chart, values: Values, name: str, port: int, advertised: str, words: str
) -> None:
    objects = chart.render(values)
    endpoint = getattr(settings(objects), name)
    host, _, number = advertised.partition(":")
    assert (endpoint.host, endpoint.port, endpoint.advertised) == ("", port, (host, int(number)))
    assert ports(objects)[name] == port
    (of_service,) = [
        one
        for one in only(objects, "Service", "loghub-service")["spec"]["ports"]
        if one["targetPort"] == name
    ]
    assert of_service["port"] == port
    notes = " ".join(chart.notes(values).split())
    protocols = {"kafka": ("SASL_PLAINTEXT", "SASL_SSL"), "pulsar": ("pulsar", "pulsar+ssl")}[name]
    protocol = protocols["tls" in values["embeddedService"]]
    assert words.format(address=advertised, protocol=protocol) in notes


@pytest.mark.parametrize(
    ("name", "owners"),
    [("kafka", (KafkaLimits, KafkaGroupLimits)), ("pulsar", (PulsarLimits,))],
    ids=["Kafka", "Pulsar"],
)
def test_each_limit_of_an_endpoint_has_a_value_with_the_bounds_of_its_flag(
    chart: Chart, name: str, owners: tuple[type[Any], ...]
) -> None:
    """The description of a value names the flag."""
    service = json.loads((ROOT / "charts/loghub-operator/values.schema.json").read_text())["properties"][
        "embeddedService"
    ]
    of_values = service["properties"][name]["properties"]["limits"]["properties"]
    by_name = {flag.name: flag for owner in owners for flag in flags_of(owner)}
    flags = {value: by_name[of["description"].split()[2]] for value, of in of_values.items()}
    assert set(by_name) == {flag.name for flag in flags.values()}
    bounds = {value: (of["minimum"], of["maximum"]) for value, of in of_values.items()}
    assert bounds == {value: (flag.minimum, flag.maximum) for value, flag in flags.items()}
    limits = {value: flag.default + 1 for value, flag in flags.items()}
    endpoint = {"enabled": True, "plaintext": True, "limits": limits}
    chosen = settings(chart.render({"embeddedService": {"enabled": True, name: endpoint}}))
    by_type = {type(one): one for one in (chosen.kafka_limits, chosen.kafka_groups, chosen.pulsar_limits)}
    for value, flag in flags.items():
        assert getattr(by_type[flag.owner], flag.fields[0]) == limits[value] * flag.unit


def test_missing_topics_are_created_for_pulsar_clients_only_if_that_is_wanted(chart: Chart) -> None:
    pulsar = {"enabled": True, "plaintext": True, "autoCreate": True}
    wanted = settings(chart.render({"embeddedService": {"enabled": True, "pulsar": pulsar}})).pulsar
    usual = settings(chart.render(PULSAR)).pulsar
    assert wanted is not None
    assert usual is not None
    assert (wanted.auto_create, usual.auto_create) == (True, False)


@pytest.mark.parametrize("title", ["Kafka", "Pulsar"])
def test_clients_do_not_send_their_secret_in_clear_unless_that_is_said(chart: Chart, title: str) -> None:
    with pytest.raises(RefusedError, match=rf"tls\.secretName, since {title} clients send their secret"):
        chart.render({"embeddedService": {"enabled": True, title.lower(): {"enabled": True}}})


@pytest.mark.parametrize(("name", "port"), [("kafka", 8080), ("kafka", 9404), ("pulsar", 9092)])
def test_each_endpoint_has_a_port_of_its_own(chart: Chart, name: str, port: int) -> None:
    """The port of Kafka clients is 9092 by default."""
    on = {"enabled": True, "plaintext": True}
    endpoints = {"kafka": on, "pulsar": on} | {name: {**on, "port": port}}
    with pytest.raises(RefusedError, match=f"{name}.port: the service uses {port} for something else"):
        chart.render({"embeddedService": {"enabled": True, **endpoints}})


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
