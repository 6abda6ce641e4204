"""The embedded service as the chart runs it: its arguments, its probes, and TLS."""

from typing import Any

import pytest

from loghub.service.__main__ import parse
from loghub.service.settings import ServiceSettings
from tests.charts.chart import Chart, Object, Values, environment, only
from tests.charts.toggles import SERVICE, TLS


def container(objects: list[Object]) -> dict[str, Any]:
    (result,) = only(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(result, dict)
    return result


def settings(objects: list[Object]) -> ServiceSettings:
    return parse(container(objects)["args"])


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
