"""What the chart finds in the cluster before it changes anything: an embedded service, another operator."""

import copy
from typing import Any

import pytest

from tests.charts.chart import FOLDER, RELEASE, Chart, Object, RefusedError, Values, as_list, only
from tests.charts.toggles import SERVICE
from tests.loghub_operator.support.apiserver import Apiserver

HOME = "2026"  # a name that YAML reads as a number


@pytest.fixture(scope="module")
def served(chart: Chart, server: Apiserver) -> Apiserver:
    """A cluster in which a release has an embedded service."""
    server.must("create", "namespace", HOME)
    stateful = only(chart.render(SERVICE, namespace=HOME), "StatefulSet")
    stateful["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": RELEASE,
        "meta.helm.sh/release-namespace": HOME,
    }
    done = server.run("apply", "-f", "-", text=as_list([stateful]))
    assert done.returncode == 0, done.stderr
    return server


def installed(chart: Chart, server: Apiserver, service: Values, *, release: str = RELEASE) -> str:
    """What an install would do, and its notes."""
    arguments = ("install", release, str(FOLDER), "--dry-run=server")
    values: Values = {
        "crds": {"install": False},
        "embeddedService": {"enabled": True, **service},
        "fullnameOverride": "chart-found",  # of no other test at this apiserver
    }
    return chart.command(server.kubeconfig, HOME, *arguments, values=values)


def test_a_size_that_is_raised_keeps_the_claim_and_says_how_it_grows(chart: Chart, served: Apiserver) -> None:
    said = installed(chart, served, {"storage": {"size": "20Gi", "className": "fast"}})
    assert "requests: {storage: 10Gi}" in said
    assert "storageClassName" not in said
    assert "patch pvc data-loghub-service-0" in said
    assert '{"requests": {"storage": "20Gi"}}' in said
    assert "patch pvc" not in installed(chart, served, {})


def test_another_name_or_a_second_service_in_the_namespace_is_refused(
    chart: Chart, served: Apiserver
) -> None:
    with pytest.raises(RefusedError, match="its logs are in the volume of that name"):
        installed(chart, served, {"name": "other"})
    with pytest.raises(RefusedError, match=f"has an embedded service already, .* of release {RELEASE}"):
        installed(chart, served, {}, release="second")


def test_a_second_operator_for_all_namespaces_is_warned_of(chart: Chart, served: Apiserver) -> None:
    other = "release first in namespace elsewhere has an operator"
    assert other not in installed(chart, served, {})
    objects = chart.render(release="first", namespace="elsewhere")
    roles = [one for one in objects if one["kind"] == "ClusterRoleBinding"]
    try:
        assert served.run("apply", "-f", "-", text=as_list(roles)).returncode == 0
        assert other in installed(chart, served, {})
    finally:
        served.run("delete", "-f", "-", text=as_list(roles))


def strings(value: Any) -> bool:
    return all(isinstance(one, str) for one in value.values())


@pytest.mark.parametrize("name", ["2026", "1e5", "0x10", "true"])
def test_names_that_yaml_reads_as_something_else_are_texts(chart: Chart, name: str) -> None:
    values: Values = copy.deepcopy(SERVICE)
    values.update(fullnameOverride=name, serviceAccount={"name": name}, networkPolicy={"enabled": True})
    values["embeddedService"]["name"] = name

    def check(one: Object) -> None:
        metadata = one["metadata"]
        assert isinstance(metadata["name"], str)
        assert isinstance(metadata.get("namespace", ""), str)
        assert strings(metadata.get("labels", {}))

    for one in chart.render(values, release=name, namespace=name):
        check(one)
    stateful = only(chart.render(values, release=name, namespace=name), "StatefulSet")
    assert strings(stateful["spec"]["selector"]["matchLabels"])
    assert isinstance(stateful["spec"]["template"]["spec"]["serviceAccountName"], str)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"podLabels": {"app.kubernetes.io/name": "x"}},
            "podLabels: the chart sets the label app.kubernetes.io/name",
        ),
        (
            {"commonLabels": {"helm.sh/chart": "x"}},
            "commonLabels: the chart sets the label helm.sh/chart itself",
        ),
        *(
            (
                {"metrics": {part: {"enabled": True, "labels": {"app.kubernetes.io/part-of": "x"}}}},
                f"metrics.{part}.labels: the chart sets the label app.kubernetes.io/part-of itself",
            )
            for part in ("serviceMonitor", "podMonitor", "prometheusRule", "dashboard")
        ),
        (
            {"commonLabels": {"team": "logs"}, "podLabels": {"team": "x"}},
            "podLabels: the chart sets the label team itself",
        ),
        (
            {"extraEnv": [{"name": "LOGHUB_LOG_LEVEL", "value": "x"}]},
            "LOGHUB_LOG_LEVEL is there twice: the chart sets",
        ),
        ({"extraEnv": [{"name": "A", "value": "1"}] * 2}, "extraEnv: A is there twice: leave one out"),
        (
            {"embeddedService": {"enabled": True, "extraEnv": [{"name": "A", "value": "1"}] * 2}},
            "embeddedService.extraEnv: A is there twice",
        ),
    ],
)
def test_nothing_is_given_twice(chart: Chart, values: Values, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        chart.render(values)
