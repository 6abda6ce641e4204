"""What a worker asks the API server about its executors, of a real one."""

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from loghub.contract.worker import LABEL_OF_WORKER, ExecutorSettings
from loghub_operator.model.observed import Placement
from loghub_operator.resources import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_worker.cluster_error import ClusterError
from loghub_worker.query import executor_pods
from loghub_worker.query.executor_pods import ExecutorPods
from tests.apiserver.test_spark_on_kubernetes import COMPONENT, IN_PODS, ROLE
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.harness import make_namespace

pytestmark = pytest.mark.cluster
ACCOUNT = "access-workers"
WORKER = "access-0"
PLACEMENT = Placement(endpoint="http://x", sink_root="/sink", needs_project_address=False, has_pods=True)


def settings() -> ExecutorSettings:
    group = resource(IN_PODS, uid="uid-1")
    config = worker_spec(group, worker_config(group, PLACEMENT), image="loghub-worker:dev").config
    assert config.executors is not None
    return config.executors


@pytest.fixture
def namespace(server: Apiserver) -> str:
    name = make_namespace(server)
    restricted = "pod-security.kubernetes.io/enforce=restricted"
    server.must("apply", "--server-side", "--force-conflicts", "-f", str(COMPONENT))
    server.must("label", "namespace", name, restricted)
    server.must("create", "serviceaccount", ACCOUNT, "-n", name)
    rights = (f"--clusterrole={ROLE.name}", f"--serviceaccount={name}:{ACCOUNT}")
    server.must("create", "rolebinding", ACCOUNT, *rights, "-n", name)
    create(server, name, pod(WORKER))
    return name


def pod(name: str, labels: Document | None = None) -> Document:
    """A pod that exists: no kubelet starts it."""
    made = json.loads(json.dumps(settings().pod))
    made["metadata"] |= {"name": name, "labels": labels or {}}
    return dict(made)


def create(server: Apiserver, namespace: str, document: Document) -> None:
    done = server.run("create", "-n", namespace, "-f", "-", text=json.dumps(document))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def account(server: Apiserver, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the kubelet mounts into a worker, with the address of this apiserver."""
    (cluster,) = yaml.safe_load(server.kubeconfig.read_text())["clusters"]
    url = urlsplit(cluster["cluster"]["server"])
    monkeypatch.setattr(executor_pods, "ADDRESS", (url.hostname, url.port))
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "token").write_text(server.must("create", "token", ACCOUNT, "-n", namespace))
    authority = cluster["cluster"].get("certificate-authority-data")
    where = cluster["cluster"].get("certificate-authority")
    text = base64.b64decode(authority) if authority else Path(where).read_bytes()
    (tmp_path / "ca.crt").write_bytes(text)
    return tmp_path


def names(server: Apiserver, namespace: str) -> set[str]:
    return set(server.must("get", "pods", "-n", namespace, "-o", "name").split())


def test_a_worker_deletes_its_own_earlier_executors_only(
    server: Apiserver, namespace: str, account: Path
) -> None:
    for name, worker in (("one", WORKER), ("two", WORKER), ("other", "access-1")):
        create(server, namespace, pod(name, {LABEL_OF_WORKER: worker}))
    ExecutorPods(settings(), worker=WORKER, account=account).delete_earlier()
    assert names(server, namespace) == {f"pod/{WORKER}", "pod/other"}


def test_the_pod_for_spark_is_owned_by_the_worker_and_the_apiserver_accepts_it(
    server: Apiserver, namespace: str, account: Path, tmp_path: Path
) -> None:
    file = tmp_path / "template.json"
    conf = ExecutorPods(settings(), worker=WORKER, account=account).spark_settings(file, cores=2)
    assert conf["spark.kubernetes.namespace"] == namespace
    assert conf["spark.kubernetes.executor.podTemplateFile"] == str(file)
    template = json.loads(file.read_text())
    uid = server.must("get", "pod", WORKER, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    assert [one["uid"] for one in template["metadata"]["ownerReferences"]] == [uid]
    template["metadata"]["name"] = "as-spark-names-it"
    strict = ("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
    assert server.run(*strict, text=json.dumps(template)).stderr == ""


def test_the_reason_why_no_executor_runs_is_what_the_apiserver_says(
    server: Apiserver, namespace: str, account: Path
) -> None:
    pods = ExecutorPods(settings(), worker=WORKER, account=account)
    assert pods.why_missing() == "Spark has made no pod, see the worker's log"

    made = settings()
    made.pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    refused = ExecutorPods(made, worker=WORKER, account=account).why_missing()
    assert 'violates PodSecurity "restricted' in refused

    server.must("create", "quota", "few", "--hard=pods=1", "-n", namespace)
    server.must("patch", "quota", "few", "-n", namespace, "--subresource=status", "--type=merge",
                "-p", '{"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}')  # fmt: skip
    assert "exceeded quota: few" in pods.why_missing()

    waiting = pod("one", {LABEL_OF_WORKER: WORKER})
    server.must("delete", "quota", "few", "-n", namespace)
    create(server, namespace, waiting)
    assert pods.why_missing() == "phase Pending"
    assert names(server, namespace) == {f"pod/{WORKER}", "pod/one"}, "asking makes none"


def test_a_worker_without_the_rights_says_what_is_missing(
    server: Apiserver, namespace: str, account: Path
) -> None:
    server.must("delete", "rolebinding", ACCOUNT, "-n", namespace)
    with pytest.raises(ClusterError, match="cannot deletecollection resource") as raised:
        ExecutorPods(settings(), worker=WORKER, account=account).delete_earlier()
    assert raised.value.reason == "SparkMasterUnavailable"


def test_a_worker_without_a_token_says_so(account: Path) -> None:
    (account / "token").unlink()
    with pytest.raises(ClusterError, match="automountServiceAccountToken"):
        ExecutorPods(settings(), worker=WORKER, account=account).delete_earlier()


def test_an_apiserver_that_does_not_answer_is_a_reason(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_pods, "ADDRESS", ("127.0.0.1", 1))
    with pytest.raises(ClusterError, match="does not answer") as raised:
        ExecutorPods(settings(), worker=WORKER, account=account).delete_earlier()
    assert raised.value.reason == "SparkMasterUnavailable"
