"""Install, upgrade and uninstall by the real helm on the real apiserver; no pod runs.

What helm alone decides: what stays, what is deleted, and who owns which fields.
"""

import base64
import json
import shutil
from pathlib import Path

import pytest
import yaml

from loghub_operator.autoscaling import external_metrics_server
from tests.charts.chart import FOLDER, RELEASE, Chart, RefusedError, Values
from tests.charts.toggles import CA_BUNDLE, SERVICE
from tests.cluster.apiserver import Standing
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import document

HOME = "chart-life"
CRD = "crd/loghubconsumergroups.loghub.dev"
WATCHED: Values = {"watchNamespaces": [HOME]}


class Life:
    """One release on one cluster."""

    def __init__(self, chart: Chart, server: Apiserver) -> None:
        self._chart = chart
        self.server = server

    def install(self, values: Values, *, release: str = RELEASE) -> str:
        arguments = ("install", release, str(FOLDER))
        return self._chart.command(self.server.kubeconfig, HOME, *arguments, values=values)

    def upgrade(self, values: Values, folder: Path = FOLDER) -> str:
        arguments = ("upgrade", RELEASE, str(folder))
        return self._chart.command(self.server.kubeconfig, HOME, *arguments, values=values)

    def own_the_crd(self) -> None:
        """As if helm had made it: its fields are kubectl's, by which the fixture has applied them. One write,
        since the apiserver compiles all rules at each."""
        result = json.loads(self.server.must("get", CRD, "-o", "json", "--show-managed-fields"))
        metadata = result["metadata"]
        applied = [one for one in metadata["managedFields"] if one["manager"] == "kubectl"]
        owner = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": HOME}
        replaced = {
            "managedFields": [{**one, "manager": "helm"} for one in applied],
            "annotations": {**metadata.get("annotations", {}), **owner},
            "labels": {**metadata.get("labels", {}), "app.kubernetes.io/managed-by": "Helm"},
        }
        patch = [
            {"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in replaced.items()
        ]
        self.server.must("patch", CRD, "--type=json", "-p", json.dumps(patch))

    def description_of_the_crd(self) -> str:
        where = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.description}"
        return self.server.must("get", CRD, "-o", where)

    def uninstall(self) -> str:
        return self._chart.command(self.server.kubeconfig, HOME, "uninstall", RELEASE)

    def names_of(self, kind: str) -> set[str]:
        arguments = ("get", kind, "-n", HOME, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
        return {line.partition("/")[2] for line in self.server.must(*arguments).splitlines()}


@pytest.fixture
def life(chart: Chart, apiserver_of_its_own: Standing) -> Life:
    server = Apiserver(apiserver_of_its_own.kubeconfig)
    server.must("create", "namespace", HOME)
    result = Life(chart, server)
    result.own_the_crd()
    return result


def test_install_upgrade_rollback_and_uninstall(life: Life, tmp_path: Path) -> None:
    """In one test, since the apiserver must be of this test alone: it changes the CRD of all."""
    assert "STATUS: deployed" in life.install(WATCHED)
    assert life.names_of("deployments") == {"loghub-operator"}
    assert life.server.apply(document(name="kept", namespace=HOME)) == ""

    # A part is switched on, and off again.
    parts: Values = {**SERVICE, "networkPolicy": {"enabled": True}, "externalMetrics": {"enabled": True}}
    life.upgrade({**WATCHED, **parts})
    assert life.names_of("statefulsets") == {"loghub-service"}
    assert life.names_of("networkpolicies") == {"loghub-operator", "loghub-service"}
    an_upgrade_leaves_the_certificate_that_the_operator_wrote(life)
    assert life.names_of("statefulsets") == set()
    an_upgrade_installs_its_crd_and_a_rollback_the_previous_one(life, tmp_path)
    assert life.names_of("poddisruptionbudgets") == set()

    # A second release that would bring the CRD too is refused before it changes anything.
    with pytest.raises(RefusedError, match="loghubconsumergroups"):
        life.install({"watchNamespaces": [HOME]}, release="second")

    said = life.uninstall()
    assert "loghubconsumergroups.loghub.dev" in said  # kept, and reported
    assert life.names_of("deployments") == set()
    assert life.server.must("get", "lhcg", "-n", HOME, "-o", "name").split() == [
        "loghubconsumergroup.loghub.dev/kept"
    ]
    # And again, over the CRD that stayed.
    assert "STATUS: deployed" in life.install(WATCHED)


def an_upgrade_leaves_the_certificate_that_the_operator_wrote(life: Life) -> None:
    spec = {"spec": {"caBundle": CA_BUNDLE}}  # as the operator does, by a merge patch
    arguments = ("apiservice", external_metrics_server.NAME)
    life.server.must(
        "patch", *arguments, "--type=merge", "--field-manager=loghub-operator", "-p", json.dumps(spec)
    )
    metrics = {"enabled": True, "annotations": {"note": "x"}}
    life.upgrade({**WATCHED, "replicas": 3, "externalMetrics": metrics})
    result = json.loads(life.server.must("get", *arguments, "-o", "json"))
    assert result["metadata"]["annotations"]["note"] == "x"
    assert base64.b64decode(result["spec"]["caBundle"]) == base64.b64decode(CA_BUNDLE)


def an_upgrade_installs_its_crd_and_a_rollback_the_previous_one(life: Life, tmp_path: Path) -> None:
    """helm leaves what is in a chart's folder of CRDs as it is forever; ours is a template."""
    before = life.description_of_the_crd()
    newer = tmp_path / "newer"
    shutil.copytree(FOLDER, newer)
    crd = newer / "files" / "crd.yaml"
    definition = yaml.safe_load(crd.read_text())
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "of a newer chart"
    crd.write_text(yaml.safe_dump(definition))
    life.upgrade(WATCHED, newer)
    assert life.description_of_the_crd() == "of a newer chart"
    assert life.server.run("get", "lhcg", "kept", "-n", HOME).returncode == 0
    life.upgrade({**WATCHED, "replicas": 1})
    assert life.description_of_the_crd() == before
