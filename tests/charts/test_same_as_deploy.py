"""`kubectl apply -k deploy` and `helm install` have the same result.

Compared are the objects that both have, in what takes effect: names, permissions, what runs and how. Labels
differ on purpose (helm's name the release), and so do image tags.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import ROOT, Chart, Object, Values
from tests.loghub_operator.support.apiserver import Apiserver

# As deploy/ has it: the service in a namespace of its own, one image tag.
VALUES: dict[str, Any] = {
    "embeddedService": {"enabled": True, "namespace": "loghub", "image": {"tag": "dev"}},
    "image": {"tag": "dev"},
    "worker": {"image": {"tag": "dev"}},
}
ONLY_CHART = {
    # What a plain `deploy/` leaves out.
    ("ClusterRole", "loghub-operator-edit"),
    ("ClusterRole", "loghub-operator-view"),
    ("Pod", "loghub-operator-check"),
}
ONLY_DEPLOY = {("Namespace", "loghub"), ("Namespace", "loghub-system")}

Key = tuple[str, str]

# The tests ask for one of two fixtures by name; said here, so that they are marked by what they need.
pytestmark = pytest.mark.usefixtures("chart", "server")


def effect(value: Any) -> Any:
    """Without labels (and selectors made of them), helm's own marks, and defaults written out."""
    if isinstance(value, dict):
        dropped = ("labels", "helm.sh/resource-policy", "helm.sh/hook")
        result = {key: effect(part) for key, part in value.items() if key not in dropped}
        return {key: part for key, part in result.items() if not _is_noise(key, part)}
    if isinstance(value, list):
        parts = [effect(part) for part in value]
        named = all(isinstance(part, dict) and "name" in part for part in parts)
        return sorted(parts, key=lambda part: str(part["name"])) if named else parts
    return value


def _is_noise(key: str, value: Any) -> bool:
    return (
        value == {}
        or key in ("matchLabels", "selector", "labelSelector")
        or (key, value) in (("protocol", "TCP"), ("type", "RollingUpdate"))
    )


def keyed(objects: list[Object]) -> dict[Key, Object]:
    return {(one["kind"], one["metadata"]["name"]): effect(one) for one in objects}


Both = tuple[dict[Key, Object], dict[Key, Object]]
COMPONENTS: dict[str, Values] = {
    "keda": {"keda": {"enabled": True}},
    "external-metrics": {"externalMetrics": {"enabled": True}},
    "spark-on-kubernetes": {"sparkOnKubernetes": {"enabled": True}},
}


def built(server: Apiserver, folder: Path) -> dict[Key, Object]:
    text = server.must("kustomize", str(folder))
    return keyed([one for one in yaml.safe_load_all(text) if one])


@pytest.fixture(scope="module")
def plain(chart: Chart, server: Apiserver) -> Both:
    """As `kubectl apply -k deploy` has it, and the chart."""
    return built(server, ROOT / "deploy"), keyed(chart.render(VALUES))


@pytest.fixture(scope="module")
def with_components(chart: Chart, server: Apiserver, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """With all components, as a user's own kustomization would name them."""
    folder = tmp_path_factory.mktemp("own")
    deploy = os.path.relpath(ROOT / "deploy", folder)
    own = {"resources": [deploy], "components": [f"{deploy}/{one}" for one in COMPONENTS]}
    (folder / "kustomization.yaml").write_text(json.dumps(own))
    values: Values = {key: value for one in (VALUES, *COMPONENTS.values()) for key, value in one.items()}
    return built(server, folder), keyed(chart.render(values))


@pytest.mark.parametrize("way", ["plain", "with_components"])
def test_chart_and_deploy_contain_the_same_objects(way: str, request: pytest.FixtureRequest) -> None:
    deploy, chart = request.getfixturevalue(way)
    assert deploy.keys() - chart.keys() == ONLY_DEPLOY
    assert chart.keys() - deploy.keys() == ONLY_CHART


@pytest.mark.parametrize("way", ["plain", "with_components"])
def test_chart_and_deploy_have_the_same_effect(way: str, request: pytest.FixtureRequest) -> None:
    deploy, chart = request.getfixturevalue(way)
    for key in deploy.keys() & chart.keys():
        assert text(chart[key]) == text(deploy[key]), key


def text(value: Object) -> list[str]:
    """Lines, so that a difference is shown as one."""
    return json.dumps(value, indent=1, sort_keys=True).splitlines()
