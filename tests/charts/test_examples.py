"""The examples of autoscaling and of kind: what they refer to exists, and the apiserver accepts them."""

import re
from typing import Any

import pytest
import yaml

from loghub_operator.autoscaling.external_metrics import LABEL
from loghub_operator.autoscaling.metric_catalog import BY_METRIC, trigger_of
from tests.charts.chart import ROOT, Chart, Object, as_list, only
from tests.cluster import kind
from tests.cluster.ip_family import IPV4
from tests.loghub_operator.support.apiserver import Apiserver

DEPLOY = ROOT / "deploy"
SCALED = {
    "hpa-external.yaml": "HorizontalPodAutoscaler",
    "hpa-scale.yaml": "HorizontalPodAutoscaler",
    "keda-scaledobject.yaml": "ScaledObject",
}


def objects_of(example: str) -> list[Object]:
    return [one for one in yaml.safe_load_all((DEPLOY / "examples" / example).read_text()) if one]


@pytest.mark.parametrize("example", sorted(path.name for path in (DEPLOY / "examples").glob("*.yaml")))
def test_the_apiserver_accepts_the_example(server: Apiserver, example: str) -> None:
    known = [one for one in objects_of(example) if not one["apiVersion"].startswith("keda.sh/")]
    arguments = ("create", "--dry-run=server", "--validate=strict", "-n", "default", "-f", "-")
    done = server.run(*arguments, text=as_list(known))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("example", SCALED)
def test_each_autoscaler_targets_the_group_within_its_bounds(example: str) -> None:
    objects = objects_of(example)
    group, scaler = only(objects, "LogHubConsumerGroup"), only(objects, SCALED[example])
    target = scaler["spec"]["scaleTargetRef"]
    assert target == {
        "apiVersion": group["apiVersion"],
        "kind": group["kind"],
        "name": group["metadata"]["name"],
    }
    scaling = group["spec"]["scaling"]
    assert scaling["mode"] == "External"
    bounds = [value for key, value in scaler["spec"].items() if re.match(r"(min|max)Replica", key)]
    assert sorted(bounds) == [scaling["minReplicas"], scaling["maxReplicas"]]


def test_the_operator_defines_the_external_metric() -> None:
    (metric,) = only(objects_of("hpa-external.yaml"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    external = metric["external"]
    assert external["metric"]["name"] in BY_METRIC
    assert external["metric"]["selector"]["matchLabels"] == {LABEL: "copy-by-hpa"}
    offered = BY_METRIC[external["metric"]["name"]].target
    assert float(external["target"]["averageValue"]) == offered


def test_the_trigger_is_valid_and_reaches_the_operator(chart: Chart) -> None:
    (trigger,) = only(objects_of("keda-scaledobject.yaml"), "ScaledObject")["spec"]["triggers"]
    assert trigger["type"] == "external-push"
    assert trigger_of("default", trigger["metadata"]).group == "copy-by-keda"
    service = only(chart.render({"keda": {"enabled": True}}), "Service", "loghub-operator-keda")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    (port,) = service["spec"]["ports"]
    assert trigger["metadata"]["scalerAddress"] == f"{name}.{namespace}.svc:{port['port']}"


def _shape(config: dict[str, Any]) -> tuple[str, str]:
    return config["kind"], config["apiVersion"]


def test_the_kind_config_is_of_the_version_that_the_tests_use(tmp_path: Any) -> None:
    config = yaml.safe_load((DEPLOY / "kind-config.yaml").read_text())
    tests_own: Any = kind.cluster_config(tmp_path, IPV4)
    assert _shape(config) == _shape(tests_own)
    assert {node["role"] for node in config["nodes"]} == {"control-plane", "worker"}


def test_the_kind_config_names_what_the_dockerfile_builds() -> None:
    text = (DEPLOY / "kind-config.yaml").read_text()
    parts = re.search(r"for part in ([a-z ]+); do", text)
    assert parts is not None
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert all(f" AS {part}\n" in dockerfile for part in parts[1].split())
    deployed = "".join((DEPLOY / f"loghub-{name}.yaml").read_text() for name in ("operator", "service"))
    assert all(f"loghub-{part}:dev" in deployed for part in parts[1].split())
