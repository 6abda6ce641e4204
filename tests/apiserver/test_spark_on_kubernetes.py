"""The right of workers to make executors as pods: given and taken by the operator over a real apiserver, with
the rights of `deploy/spark-on-kubernetes`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.contract.worker import KUBERNETES
from loghub_operator.clients.kube import ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET
from loghub_operator.settings import ExecutorRole, WorkerDefaults
from tests.loghub_operator.support.apiserver import ROOT, Apiserver
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import Stage, make_namespace, stage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
COMPONENT = ROOT / "deploy" / "spark-on-kubernetes" / "spark-on-kubernetes.yaml"
ROLE = ExecutorRole("ClusterRole", "loghub-operator-executors")
IN_PODS = {"replicas": 1, "spark": {"master": KUBERNETES, "cores": 2}}
WORKERS = "access-workers"
OPERATOR = "system:serviceaccount:loghub-system:loghub-operator"


@pytest.fixture
def allowing(server: Apiserver, monkeypatch: pytest.MonkeyPatch) -> Apiserver:
    """The operator may run such workers."""
    server.must("apply", "--server-side", "--force-conflicts", "-f", str(COMPONENT))
    usual = Stage.settings.fget
    assert usual is not None
    allowed = WorkerDefaults(executor_role=ROLE)
    monkeypatch.setattr(Stage, "settings", property(lambda on: replace(usual(on), worker_defaults=allowed)))
    return server


def test_workers_get_the_right_with_the_master_and_lose_it_with_another(
    allowing: Apiserver, tmp_path: Path
) -> None:
    async def story(on: Stage) -> None:
        async def subjects() -> object:
            binding = await on.get(ROLE_BINDING, WORKERS)
            return None if binding is None else binding.get("subjects")

        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        assert await on.get(ROLE_BINDING, WORKERS) is None

        await on.apply(IN_PODS)
        await on.until_phase("Running", "1/1")
        assert await subjects() == [{"kind": "ServiceAccount", "name": WORKERS, "namespace": on.namespace}]
        template = (await on.get(STATEFUL_SET) or {})["spec"]["template"]["spec"]
        assert (template["serviceAccountName"], template["automountServiceAccountToken"]) == (WORKERS, True)
        await on.until_settled()

        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        assert await subjects() is None
        template = (await on.get(STATEFUL_SET) or {})["spec"]["template"]["spec"]
        assert template["automountServiceAccountToken"] is False

        await on.apply(IN_PODS)
        await on.until_phase("Running", "1/1")
        assert await subjects() is not None
        await on.remove()
        await on.until_deleted()
        assert await on.get(SERVICE_ACCOUNT, WORKERS) is None
        assert await subjects() is None

    stage(allowing, tmp_path, story)


def test_without_the_setting_no_such_worker_is_started_and_the_status_says_what_to_do(
    server: Apiserver, tmp_path: Path
) -> None:
    async def story(on: Stage) -> None:
        await on.apply(IN_PODS)
        reported = await on.until_reason("Ready", "ReconcileError")
        assert KUBERNETES in reported["message"]
        assert "sparkOnKubernetes.enabled" in reported["message"]
        assert await on.get(STATEFUL_SET) is None
        assert await on.get(ROLE_BINDING, WORKERS) is None

    stage(server, tmp_path, story)


def test_the_operator_can_bind_this_role_only_and_change_no_binding_of_another(allowing: Apiserver) -> None:
    namespace = make_namespace(allowing)

    def write(verb: str, role: str) -> str:
        """As the operator; what the API server says against it."""
        binding: Document = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"of-{role}", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": namespace}],
        }
        return allowing.run(*verb.split(), "-f", "-", f"--as={OPERATOR}", text=json.dumps(binding)).stderr

    assert write("create", ROLE.name) == ""
    refused = "attempting to grant RBAC permissions not currently held"
    assert refused in write("create", "cluster-admin")
    theirs = ("of-cluster-admin", "--clusterrole=cluster-admin", "--user=u")
    allowing.must("create", "rolebinding", *theirs, "-n", namespace)
    assert refused in write("apply --server-side --force-conflicts", "cluster-admin")
    for name in (f"of-{ROLE.name}", "of-cluster-admin"):
        deleted = allowing.run("delete", "rolebinding", name, "-n", namespace, f"--as={OPERATOR}")
        assert "cannot delete resource" in deleted.stderr
