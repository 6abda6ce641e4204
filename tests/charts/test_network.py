"""What the chart's NetworkPolicies allow: the connections that the pods need, and nothing else.

No network here enforces them; their ports and peers are compared with the pods'.
"""

from typing import Any

import pytest

from loghub_operator.observe.observer import placement_of
from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings
from tests.charts.chart import Chart, Object, Values, only
from tests.charts.toggles import PULSAR_TLS
from tests.loghub_operator.support.examples import resource

ON: Values = {"networkPolicy": {"enabled": True}}
NUMBERS: Values = {"externalMetrics": {"enabled": True}, "keda": {"enabled": True}}
SERVICE: Values = {"embeddedService": {"enabled": True}}
SCRAPERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
# DNS, Services of projects and plain HTTP, the apiserver before and after its Service, the service's pods.
USUAL = {53, 80, 443, 6443, 8080}


def policy_of(objects: list[Object], name: str = "loghub-operator") -> dict[str, Any]:
    result: dict[str, Any] = only(objects, "NetworkPolicy", name)["spec"]
    return result


def ports(rules: list[dict[str, Any]]) -> list[Any]:
    return [port["port"] for rule in rules for port in rule["ports"]]


def container_ports(workload: Object) -> dict[str, int]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


@pytest.mark.parametrize("further", [{}, NUMBERS, {"keda": {"enabled": True}}])
def test_each_port_that_the_operator_serves_is_open_and_no_other(chart: Chart, further: Values) -> None:
    objects = chart.render(ON | further)
    assert sorted(ports(policy_of(objects)["ingress"])) == sorted(
        container_ports(only(objects, "Deployment"))
    )


def test_the_policy_selects_the_operators_pods_for_both_directions(chart: Chart) -> None:
    objects = chart.render(ON)
    policy, pods = policy_of(objects), only(objects, "Deployment")["spec"]["template"]["metadata"]
    assert policy["podSelector"]["matchLabels"].items() <= pods["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_metrics_are_for_the_scrapers_and_for_helm_test(chart: Chart) -> None:
    values = {"networkPolicy": {"enabled": True, "metricsFrom": SCRAPERS}, **NUMBERS}
    objects = chart.render(values)
    http, *others = policy_of(objects)["ingress"]
    assert ports([http]) == ["http"]
    scrapers, check = http["from"]
    assert [scrapers] == SCRAPERS
    labels = only(objects, "Pod")["metadata"]["labels"]
    assert check["podSelector"]["matchLabels"].items() <= labels.items()
    assert all("from" not in rule for rule in others)  # an apiserver has no labels


@pytest.mark.parametrize(
    ("values", "further"),
    [
        ({}, set()),
        (SERVICE, set()),
        ({"embeddedEndpoint": "https://10.0.0.7:8443"}, {8443}),
        ({"embeddedEndpoint": "http://logs.svc:80"}, set()),
        ({"networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"port": 5353}]}]}}, {5353}),
    ],
)
def test_the_operator_reaches_dns_the_apiserver_and_the_endpoint(
    chart: Chart, values: Values, further: set[int]
) -> None:
    egress = [rule for rule in policy_of(chart.render(ON | values))["egress"] if "to" not in rule]
    assert set(ports(egress)) == USUAL | further


def test_the_operator_reaches_the_statuses_of_its_workers_and_no_other_pods(chart: Chart) -> None:
    (rule,) = [rule for rule in policy_of(chart.render(ON))["egress"] if "to" in rule]
    group = resource()
    config = worker_config(group, placement_of(group, Settings(embedded_endpoint="http://127.0.0.1:1")))
    pods = worker_spec(group, config, image="i").stateful_set
    assert ports([rule]) == list(container_ports(pods).values())
    (peer,) = rule["to"]
    assert peer["namespaceSelector"] == {}  # groups are in any namespace
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    assert peer["podSelector"]["matchLabels"] != {}


@pytest.mark.parametrize(
    ("service", "served"), [(SERVICE, ["http"]), (PULSAR_TLS, ["http", "kafka", "pulsar"])]
)
@pytest.mark.parametrize("scrapers", [[], SCRAPERS])
def test_the_service_accepts_all_clients_and_only_scrapers_and_opens_no_connection(
    chart: Chart, scrapers: list[Any], service: Values, served: list[str]
) -> None:
    values = service | {"networkPolicy": {"enabled": True, "metricsFrom": scrapers}}
    objects = chart.render(values)
    policy, pods = policy_of(objects, "loghub-service"), only(objects, "StatefulSet")
    assert (
        policy["podSelector"]["matchLabels"].items() <= pods["spec"]["template"]["metadata"]["labels"].items()
    )
    clients, metrics = policy["ingress"]
    assert clients.keys() == {"ports"}
    assert (ports([clients]), ports([metrics])) == (served, ["admin"])
    assert metrics.get("from", []) == scrapers
    assert sorted(ports(policy["ingress"])) == sorted(container_ports(pods))
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    assert container_ports(pods)["http"] in USUAL  # the operator's way to it
