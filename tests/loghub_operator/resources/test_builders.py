"""The built objects have the properties that the design requires."""

import asyncio
import builtins
import importlib.util
import json
from typing import Any, cast

import msgspec
import pytest
import yaml

from loghub.clock import SystemClock
from loghub.contract import sinks
from loghub.contract import worker as contract
from loghub.contract.processor import ProcessorPipeline, RetryLogstore
from loghub.contract.worker import WorkerConfig
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.labels import ANNOTATION_REVISION
from loghub_operator.apply.applier import Applier
from loghub_operator.clients.kube import POD, Kind, Kube
from loghub_operator.model.actions import ApplyWorkers, RemoveWorkers
from loghub_operator.model.observed import Placement
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.resources import (
    config_map,
    disruption_budget,
    governing_service,
    project_service,
    service_account,
    with_replicas,
    worker_spec,
)
from loghub_operator.resources.worker_config import DRAIN_TIMEOUT_S, config_hash, worker_config
from loghub_operator.settings import Settings
from tests.loghub_operator.support.apiserver import ROOT, Apiserver
from tests.loghub_operator.support.examples import Document, resource

PLACEMENT = Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=True)
IMAGE = "loghub-worker:dev"


def built(group: LogHubConsumerGroup, replicas: int = 2) -> Document:
    return with_replicas(spec_of(group).stateful_set, replicas)


def spec_of(group: LogHubConsumerGroup, image: str = IMAGE) -> WorkerSpec:
    return worker_spec(group, worker_config(group, PLACEMENT), image=image)


def container(result: Document) -> Document:
    containers: list[Document] = result["spec"]["template"]["spec"]["containers"]
    (only,) = containers
    return only


def example(spec: Document | None = None) -> LogHubConsumerGroup:
    return resource(spec, uid="uid-1")


def dry_run(server: Apiserver, result: Document) -> str:
    """What the apiserver has against the object; "" is nothing."""
    options = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    return server.run(*options, text=json.dumps(result)).stderr


def test_pods_start_in_parallel_and_match_the_status_selector() -> None:
    spec = built(example(), replicas=3)["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert spec["serviceName"] == governing_service(example())["metadata"]["name"]


def test_the_grace_period_is_longer_than_the_drain() -> None:
    pod = built(example())["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_TIMEOUT_S
    assert worker_config(example(), PLACEMENT).drain_timeout_s == DRAIN_TIMEOUT_S


def test_the_pre_stop_hook_is_a_module_of_the_worker() -> None:
    python, flag, module = container(built(example()))["lifecycle"]["preStop"]["exec"]["command"]
    assert (python, flag) == ("python", "-m")
    assert importlib.util.find_spec(module) is not None


def test_the_consumer_is_the_pod_and_a_drain_is_requested_by_annotation() -> None:
    result = built(example())
    names = {one["name"]: one for one in container(result)["env"]}
    assert names[contract.ENV_CONSUMER]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    volumes = {one["name"]: one for one in result["spec"]["template"]["spec"]["volumes"]}
    (item,) = volumes["pod"]["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{contract.DRAIN_ANNOTATION}']"
    assert (
        result["spec"]["template"]["metadata"]["annotations"][contract.DRAIN_ANNOTATION]
        == contract.DRAIN_NOT_REQUESTED
    )


def test_every_file_of_the_contract_is_in_a_mount() -> None:
    result = container(built(example()))
    mounts = tuple(one["mountPath"] for one in result["volumeMounts"])
    for one in result["env"]:
        value = one.get("value", "")
        if value.startswith("/") and one["name"] != contract.ENV_TERMINATION_LOG:
            assert value.startswith(mounts), one


def test_the_worker_can_read_the_config_map() -> None:
    config = worker_config(example(), PLACEMENT)
    result = config_map(example(), config)
    (text,) = result["data"].values()
    assert msgspec.json.decode(text, type=WorkerConfig) == config
    assert config.sink == sinks.ParquetSink(path="/sink/access")
    assert result["immutable"] is True
    assert result["metadata"]["name"].endswith(config_hash(config))


def test_only_settings_are_deleted_among_config_maps_with_the_workers_labels() -> None:
    """A user's own ConfigMap, such as that of the code, may be labelled as the workers are."""
    group = example()
    settings = config_map(group, worker_config(group, PLACEMENT))
    theirs = {"metadata": {"name": "code", "labels": settings["metadata"]["labels"]}}
    deleted: list[str] = []

    class Objects:
        async def get(self, *_: object) -> None:
            return None

        async def list(self, *_: object) -> builtins.list[Document]:
            return [settings, theirs]

        async def delete(self, _kind: Kind, _namespace: str, name: str) -> None:
            deleted.append(name)

    others = {name: cast(Any, None) for name in ("log_service", "wrote", "events")}
    result = Applier(kube=cast(Kube, Objects()), settings=Settings(), clock=SystemClock(), **others)
    asyncio.run(result.carry_out(group, RemoveWorkers()))
    assert deleted == [settings["metadata"]["name"]]


@pytest.mark.parametrize("annotations", [{}, {ANNOTATION_REVISION: "edited"}, None])
def test_settings_that_a_pod_mounts_are_kept_whatever_its_annotations_say(
    annotations: Document | None,
) -> None:
    """Pods of an earlier version of the operator, or those whose annotations another client edited."""
    unused, mounted, current = (spec_of(example({"timeoutSeconds": n})) for n in (40, 50, 60))
    template = mounted.stateful_set["spec"]["template"]
    about = {"name": "access-0", **template["metadata"]}
    about["annotations"] = template["metadata"]["annotations"] if annotations is None else annotations
    gone: list[str] = []

    class Objects:
        async def get(self, *_: object) -> None:
            return None

        async def apply(self, document: Document) -> Document:
            return document

        async def list(self, kind: Kind, *_: object) -> builtins.list[Document]:
            if kind == POD:
                return [{"metadata": about, "spec": template["spec"]}]
            return [config_map(example(), spec.config) for spec in (unused, mounted, current)]

        async def delete(self, _kind: Kind, _namespace: str, name: str) -> None:
            gone.append(name)

    made = Applier(
        kube=cast(Kube, Objects()),
        log_service=cast(Any, None),
        wrote=lambda *_: None,
        events=cast(Any, None),
        settings=Settings(),
        clock=SystemClock(),
    )
    asyncio.run(made.carry_out(example(), ApplyWorkers(replicas=1, spec=current)))
    assert gone == [config_map(example(), unused.config)["metadata"]["name"]]


def test_a_logstore_sink_needs_no_claim() -> None:
    group = example({"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}})
    pod = built(group)["spec"]["template"]["spec"]
    assert not [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert worker_config(group, PLACEMENT).sink == sinks.LogstoreSink(project="demo", logstore="copy")


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({}, {"cpu": "250m", "memory": "1536Mi"}, {"memory": "2Gi"}),
        ({"requests": {"memory": "4Gi"}}, {"cpu": "250m", "memory": "4Gi"}, {"memory": "4Gi"}),
        ({"limits": {"memory": "1Gi"}}, {"cpu": "250m", "memory": "1Gi"}, {"memory": "1Gi"}),
        ({"requests": {"cpu": 2}}, {"cpu": "2", "memory": "1536Mi"}, {"memory": "2Gi"}),
    ],
)
def test_resources_are_merged_key_by_key(given: Document, requests: Document, limits: Document) -> None:
    result = container(built(example({"worker": {"resources": given}})))["resources"]
    assert result == {"requests": {**requests, "ephemeral-storage": "1Gi"}, "limits": limits}


PROCESSOR = {"sql": None, "sink": None, "processor": {"factory": "counts:Count"}}


@pytest.mark.parametrize(
    ("processes", "cpu", "expected", "memory"),
    [
        (1, None, 1, ("288Mi", "640Mi")),
        (4, None, 4, ("768Mi", "1792Mi")),
        (0, "2500m", 3, ("608Mi", "1408Mi")),
        (0, "1M", 64, ("10368Mi", "24832Mi")),
        (0, None, 0, ("288Mi", None)),
    ],
)
def test_the_memory_of_a_worker_with_a_processor_depends_on_its_processes(
    processes: int, cpu: str | None, expected: int, memory: tuple[str, str | None]
) -> None:
    limits = {} if cpu is None else {"cpu": cpu}
    given = {"pipeline": PROCESSOR, "worker": {"resources": {"limits": limits}}}
    given["pipeline"] = PROCESSOR | {"processor": {"factory": "counts:Count", "processes": processes}}
    group = example(given)
    pipeline = worker_config(group, PLACEMENT).pipeline
    assert isinstance(pipeline, ProcessorPipeline)
    assert pipeline.processes == expected
    found = container(built(group))["resources"]
    assert (found["requests"]["memory"], found["limits"].get("memory")) == memory


def test_a_processor_has_no_sink_and_its_code_as_a_function_has() -> None:
    claim = {"factory": "counts:Count", "volumeClaim": {"name": "code", "path": "lib"}}
    group = example({"pipeline": PROCESSOR | {"processor": claim}})
    config, pod = worker_config(group, PLACEMENT), built(group)["spec"]["template"]["spec"]
    assert config.sink == sinks.NoSink()
    assert config.pipeline == ProcessorPipeline(factory="counts:Count", folder="lib")
    claims = [one["persistentVolumeClaim"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [{"claimName": "code"}]


def test_how_a_processor_acknowledges_reaches_its_workers() -> None:
    given = {
        "factory": "counts:Count",
        "listener": "counts:Seeks",
        "acknowledge": "Log",
        "redelivery": {
            "delayMilliseconds": 250,
            "maxDelayMilliseconds": 5000,
            "ackTimeoutSeconds": 30,
            "maxAckTimeoutSeconds": 300,
            "maxUnacknowledged": 7,
        },
        "retryLogstore": {"name": "retries", "delaysSeconds": [5, 50]},
    }
    pipeline = PROCESSOR | {"processor": given, "onFailure": {"policy": "Skip"}}
    assert worker_config(example({"pipeline": pipeline}), PLACEMENT).pipeline == ProcessorPipeline(
        factory="counts:Count",
        listener="counts:Seeks",
        acknowledge="log",
        redelivery_delay_s=0.25,
        max_redelivery_delay_s=5.0,
        ack_timeout_s=30.0,
        max_ack_timeout_s=300.0,
        max_unacknowledged=7,
        retry=RetryLogstore(logstore="retries", delays_s=(5.0, 50.0)),
    )


def test_the_disruption_budget_is_one_and_workers_have_no_token() -> None:
    budget = disruption_budget(example())["spec"]
    pod = built(example())["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"] == pod["selector"]["matchLabels"]
    account = service_account(example())
    assert account["automountServiceAccountToken"] is False
    assert pod["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert pod["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_image_of_the_spec_takes_precedence() -> None:
    assert container(built(example()))["image"] == IMAGE
    assert container(built(example({"worker": {"image": "mine:1"}})))["image"] == "mine:1"


def test_the_revision_covers_everything_but_the_number() -> None:
    def digest(spec: Document | None, image: str = IMAGE) -> Revision:
        return spec_of(example(spec), image).revision

    assert digest({"replicas": 1}) == digest({"replicas": 3})
    # The log service alone needs to know it; the shard's children wait there.
    assert digest({"inOrder": True}) == digest({"inOrder": False})
    assert (
        len(
            {
                digest(None),
                digest({"timeoutSeconds": 50}),
                digest({"worker": {"image": "x"}}),
                digest(None, "y"),
            }
        )
        == 4
    )


def test_every_object_in_the_namespace_is_owned_by_the_resource() -> None:
    group = example()
    for result in (built(group), *spec_of(group).dependencies):
        (owner,) = result["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("LogHubConsumerGroup", "uid-1", True)


def test_a_projects_service_has_no_owner_and_port_80() -> None:
    result = project_service("demo", "loghub")
    assert "ownerReferences" not in result["metadata"]
    (port,) = result["spec"]["ports"]
    assert port["port"] == 80
    service = next(
        one
        for one in yaml.safe_load_all((ROOT / "deploy" / "loghub-service.yaml").read_text())
        if one["kind"] == "StatefulSet"
    )
    template = service["spec"]["template"]
    assert result["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert port["targetPort"] in [one["name"] for one in template["spec"]["containers"][0]["ports"]]


def test_the_apiserver_accepts_every_object_and_the_pods_are_restricted(server: Apiserver) -> None:
    namespace = "restricted-workers"
    server.must("create", "namespace", namespace)
    server.must("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    group = resource(uid="00000000-0000-0000-0000-000000000001", namespace=namespace)
    template = built(group)["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "access-0", "namespace": namespace, **template["metadata"]},
        "spec": template["spec"],
    }
    for result in (built(group), *spec_of(group).dependencies):
        assert dry_run(server, result) == ""
    server.must("create", "serviceaccount", "access-workers", "-n", namespace)
    assert dry_run(server, pod) == ""
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}
    assert "violates PodSecurity" in dry_run(server, pod)


def test_the_apiserver_accepts_the_manifests_and_the_examples(server: Apiserver) -> None:
    server.must("apply", "--server-side", "-f", str(ROOT / "deploy" / "loghub-service.yaml"))
    server.must("apply", "--server-side", "--dry-run=server", "-k", str(ROOT / "deploy"))
    for file in sorted((ROOT / "deploy" / "examples").glob("*.yaml")):
        for result in yaml.safe_load_all(file.read_text()):
            if not result["apiVersion"].startswith("keda.sh/"):  # its kind is KEDA's; tests/charts reads it
                assert dry_run(server, result) == ""


def test_the_deployments_pods_are_restricted(server: Apiserver) -> None:
    for file in ("loghub-service.yaml", "loghub-operator.yaml"):
        for result in yaml.safe_load_all((ROOT / "deploy" / file).read_text()):
            if result["kind"] not in ("StatefulSet", "Deployment"):
                continue
            namespace = f"restricted-{result['metadata']['name']}"
            server.must("create", "namespace", namespace)
            server.must("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
            server.must("create", "serviceaccount", result["metadata"]["name"], "-n", namespace)
            template = result["spec"]["template"]
            # The StatefulSet controller would add the claim's volume.
            claims = result["spec"].get("volumeClaimTemplates", [])
            template["spec"]["volumes"] += [
                {"name": one["metadata"]["name"], "emptyDir": {}} for one in claims
            ]
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "one", "namespace": namespace, **template["metadata"]},
                "spec": template["spec"],
            }
            assert dry_run(server, pod) == ""
