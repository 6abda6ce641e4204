"""What a user reads after a mistake, on a real cluster.

Every mistake is reported in a condition of the object that has it, while everything else continues. In
`make test` are those that the kubelet and the scheduler find. What the operator finds, and what the schema
rejects, is tested without nodes (`tests/apiserver/test_lifecycle.py`, `tests/loghub_operator/api`).
"""

import re
from collections.abc import Iterator

import pytest

from tests.cluster.kubectl import Object, eventually
from tests.cluster.release import Release
from tests.cluster.stack import Stack, consumer_group

NAMESPACE = "bad-input"
LOGSTORE = "bad"
BASE = {"project": "bad-project", "logstore": LOGSTORE, "replicas": 0}

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture(scope="module")
def place(release: Release, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A namespace of its own; shows everything when a test in it fails."""
    stack, failed_before = release.stack, request.session.testsfailed
    stack.make_namespace(NAMESPACE)
    with stack.client("bad-project") as client:
        client.create_project()
        client.create_logstore(LOGSTORE, shards=1)
    yield stack
    if request.session.testsfailed > failed_before:
        print(stack.explain(NAMESPACE))
    # Not waited for: what matters is that no failing worker is restarted during other tests.
    stack.kubectl.run("delete", "lhcg", "--all", "-n", NAMESPACE, "--wait=false")


def group(name: str, **spec: object) -> Object:
    return consumer_group(name, **{**BASE, **spec})


@pytest.mark.deep
def test_a_missing_secret_is_named(place: Stack) -> None:
    place.kubectl.apply(group("no-secret", credentialsSecret={"name": "absent"}), namespace=NAMESPACE)
    message = place.wait_condition(
        "no-secret", NAMESPACE, "GroupSynced", status="False", reason="CredentialsMissing"
    )
    assert "absent" in message
    place.make_secret(NAMESPACE, "absent")
    place.wait_condition("no-secret", NAMESPACE, "GroupSynced", status="True", reason="UpToDate")


@pytest.mark.deep
def test_a_wrong_access_key_is_reported_and_never_shown(place: Stack) -> None:
    place.make_secret(NAMESPACE, "wrong-key", key_secret="not-the-secret-of-this-key")
    place.kubectl.apply(group("wrong-key", credentialsSecret={"name": "wrong-key"}), namespace=NAMESPACE)
    place.wait_condition("wrong-key", NAMESPACE, "GroupSynced", status="False", reason="AuthenticationFailed")
    shown = place.kubectl.run("get", "lhcg,events", "-n", NAMESPACE, "-o", "yaml")
    assert "not-the-secret-of-this-key" not in shown


@pytest.mark.deep
def test_a_missing_logstore_is_named(place: Stack) -> None:
    place.kubectl.apply(group("no-logstore", logstore="absent"), namespace=NAMESPACE)
    message = place.wait_condition(
        "no-logstore", NAMESPACE, "GroupSynced", status="False", reason="LogstoreNotFound"
    )
    assert "absent" in message


@pytest.mark.deep
def test_an_unreachable_endpoint_is_named(place: Stack) -> None:
    place.kubectl.apply(group("no-endpoint", replicas=1, endpoint="http://127.0.0.1:9"), namespace=NAMESPACE)
    message = place.wait_condition(
        "no-endpoint", NAMESPACE, "GroupSynced", status="False", reason="EndpointUnreachable"
    )
    assert "127.0.0.1" in message
    assert place.kubectl.get("statefulset", "no-endpoint", NAMESPACE) is None


def test_an_image_that_cannot_be_pulled_is_named(place: Stack) -> None:
    worker = {"image": "nowhere.invalid/worker:absent"}
    place.kubectl.apply(group("no-image", replicas=1, worker=worker), namespace=NAMESPACE)

    def reported() -> Object | None:
        result = place.condition("no-image", NAMESPACE, "WorkersAvailable") or {}
        # The kubelet says either in turn, and the one of them for a moment only.
        return result if result.get("reason") in ("ErrImagePull", "ImagePullBackOff") else None

    result = eventually(reported, what="the kubelet's reason")
    assert result["status"] == "False"
    assert "nowhere.invalid/worker:absent" in result["message"]


def test_an_unschedulable_worker_is_reported_with_the_schedulers_message(place: Stack) -> None:
    worker = {"podTemplate": {"spec": {"nodeSelector": {"loghub.dev/nowhere": "here"}}}}
    place.kubectl.apply(group("no-node", replicas=1, worker=worker), namespace=NAMESPACE)

    def reported() -> bool:
        result = place.condition("no-node", NAMESPACE, "WorkersAvailable")
        return result is not None and re.search(r"no-node-0: 0/\d+ nodes are available", result["message"])

    eventually(reported, what="the scheduler's message")
    result = place.condition("no-node", NAMESPACE, "WorkersAvailable")
    assert result is not None
    assert (result["status"], result["reason"]) == ("False", "WorkersNotReady")


def test_a_failing_init_container_is_reported_with_its_termination_message(place: Stack) -> None:
    before: Object = {
        "name": "before",
        "image": place.cluster.images["worker"],
        "command": ["python", "-c", "raise SystemExit('the disk is not formatted')"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    worker = {"podTemplate": {"spec": {"initContainers": [before]}}}
    place.kubectl.apply(group("crashing", replicas=1, worker=worker), namespace=NAMESPACE)

    def reported() -> bool:
        result = place.condition("crashing", NAMESPACE, "Degraded")
        return result is not None and "the disk is not formatted" in result["message"]

    eventually(reported, what="the termination message of the container")
    workers = place.condition("crashing", NAMESPACE, "WorkersAvailable")
    assert workers is not None
    assert workers["status"] == "False"
    assert "crashing-0: container before: " in workers["message"]


@pytest.mark.deep
def test_invalid_sql_is_reported_with_sparks_message(place: Stack) -> None:
    pipeline = {"sql": "SELEKT contents FROM logs", "sink": {"logstore": {"name": "elsewhere"}}}
    place.kubectl.apply(group("bad-sql", replicas=1, pipeline=pipeline), namespace=NAMESPACE)
    message = place.wait_condition(
        "bad-sql", NAMESPACE, "WorkersAvailable", status="False", reason="InvalidPipeline"
    )
    assert "SELEKT" in message
