"""The operator with the permissions that the chart grants it for one namespace, and no others.

The apiserver, its authorization, kopf, and the operator are real; pods and the log service are simulated
(`tests.loghub_operator.support.harness`). The operator runs with the settings that the chart gives it.
"""

import asyncio
import uuid
from pathlib import Path

import pytest
import yaml

from loghub_operator.clients.kube import CONSUMER_GROUP, POD, Kind
from loghub_operator.leader import leader_label
from loghub_operator.settings import Settings
from tests.charts.chart import Chart, Object, as_list, environment, only
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import document
from tests.loghub_operator.support.harness import GROUP, PROJECT, Stage, make_namespace, play

LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
OPERATOR_POD = "loghub-operator-0"
# What a machine without pods has instead of what the chart says.
HERE = {
    "LOGHUB_POD_NAME": OPERATOR_POD,
    "LOGHUB_EMBEDDED_ENDPOINT": "http://127.0.0.1:1",
    "LOGHUB_HTTP_ADDRESS": "",
    "LOGHUB_RESYNC_SECONDS": "0.5",
}


def pod(namespace: str) -> Object:
    """The pod that the operator believes to be in."""
    metadata = {"name": OPERATOR_POD, "namespace": namespace}
    spec = {"containers": [{"name": "operator", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def kubeconfig_of(server: Apiserver, home: str, folder: Path, *, account: str = "loghub-operator") -> Path:
    """With the rights of the chart's account."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    token = server.must("create", "token", account, "-n", home).strip()
    config["users"][0]["user"] = {"token": token}
    path = folder / "namespaced.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def as_granted(
    server: Apiserver, objects: list[Object], home: str, folder: Path, **environ: str
) -> tuple[Settings, Path]:
    """What the operator of these objects runs with, once they are there: settings and kubeconfig."""
    rights = [one for one in objects if one["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
    server.must("create", "-f", _written(folder, [*rights, pod(home)]))
    variables = {**environment(only(objects, "Deployment")), **HERE, **environ}
    return Settings.from_environment(variables), kubeconfig_of(server, home, folder)


def test_a_group_works_with_the_permissions_of_one_namespace(
    chart: Chart,
    server: Apiserver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    watched, other, home = make_namespace(server), make_namespace(server), make_namespace(server)
    values = {"watchNamespaces": [watched], "rbac": {"secretNames": ["loghub-credentials"]}}
    settings, config = as_granted(server, chart.render(values, namespace=home), home, tmp_path)
    monkeypatch.setattr(Stage, "settings", settings)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def story(on: Stage) -> None:
        await on.kube.apply(document({"project": PROJECT}, namespace=other))
        await on.apply({"replicas": 2, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "2/2")
        assert await on.kube.get(LEASE, home, "loghub-operator") is not None

        async def labelled() -> bool:
            result = await on.kube.get(POD, home, OPERATOR_POD) or {}
            return bool((result["metadata"].get("labels") or {}).get(leader_label.LABEL) == "loghub-operator")

        await on.until("the label of the one who acts", labelled)
        await on.apply({"replicas": 1, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []
        await on.remove()
        await on.until_deleted()
        left_alone = await on.kube.get(CONSUMER_GROUP, other, GROUP) or {}
        assert left_alone["status"] == {"observedGeneration": -1}  # the default of the CRD
        await on.kube.delete(CONSUMER_GROUP, other, GROUP)

    asyncio.run(play(server.kubeconfig, watched, story))
    said = capfd.readouterr()
    assert "forbidden" not in (said.out + said.err).lower()


@pytest.mark.parametrize(
    ("secret", "environ", "kind", "reason", "message"),
    [
        ("another", {}, "GroupSynced", "CredentialsMissing", "no right to read Secret loghub-credentials"),
        (
            "loghub-credentials",
            {"LOGHUB_EMBEDDED_ENDPOINT": "http://elsewhere.svc"},
            *("Ready", "ReconcileError", 'cannot get resource "services"'),
        ),
    ],
    ids=["a Secret of another name", "no role where the projects' Services are"],
)
def test_a_missing_permission_is_reported_and_does_not_block_a_deletion(
    chart: Chart,
    server: Apiserver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    secret: str,
    environ: dict[str, str],
    kind: str,
    reason: str,
    message: str,
) -> None:
    """One of the watched namespaces was deleted too, with the role in it."""
    watched, home = make_namespace(server), make_namespace(server)
    values = {"watchNamespaces": ["long-gone", watched], "rbac": {"secretNames": [secret]}}
    rendered = chart.render(values, namespace=home)
    objects = [one for one in rendered if one["metadata"].get("namespace") != "long-gone"]
    settings, config = as_granted(server, objects, home, tmp_path, **environ)
    monkeypatch.setattr(Stage, "settings", settings)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    async def story(on: Stage) -> None:
        await on.apply()
        assert message in (await on.until_reason(kind, reason))["message"]
        await on.remove()
        await on.until_deleted()

    asyncio.run(play(server.kubeconfig, watched, story))


def _written(folder: Path, objects: list[Object]) -> str:
    path = folder / f"{uuid.uuid4().hex}.json"
    path.write_text(as_list(objects))
    return str(path)
