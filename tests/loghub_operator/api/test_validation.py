"""The apiserver and `parse_resource` report each broken rule and bound with the same message.

The apiserver half is the real one with the committed CRD; it runs where its programs are installed.
"""

import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_operator.api import parse_resource, resources_in
from tests.loghub_operator.api import failure_cases, sink_cases, spark_cases, subscription_cases
from tests.loghub_operator.api.crd_cases import nodes, place, root
from tests.loghub_operator.api.pipeline_rules import PIPELINE_RULES
from tests.loghub_operator.api.problems import problems
from tests.loghub_operator.api.test_transitions import CHANGES, immutable
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document

ROOT = Path(__file__).parents[3]
NAME_RULE = "metadata.name must be 2 to 52 lower-case letters"

RULES: dict[str, tuple[Document, str, str]] = {
    "min-above-max": (
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
        "spec.scaling",
        "minReplicas must not be greater than maxReplicas",
    ),
    "endpoint-of-another-scheme": (
        {"endpoint": "ftp://example.com"},
        "spec.endpoint",
        "endpoint must be 'embedded' or the URL of an endpoint without project and path",
    ),
    "endpoint-with-path": (
        {"endpoint": "https://example.com/logs"},
        "spec.endpoint",
        "endpoint must be 'embedded' or the URL of an endpoint without project and path",
    ),
    "endpoint-with-a-port-too-long": (
        {"endpoint": "http://127.0.0.1:123456"},
        "spec.endpoint",
        "endpoint must be 'embedded' or the URL of an endpoint without project and path",
    ),
    "endpoint-without-brackets": (
        {"endpoint": "http://fd00::7:8080"},
        "spec.endpoint",
        "endpoint must be 'embedded' or the URL of an endpoint without project and path",
    ),
    "endpoint-with-a-name-in-brackets": (
        {"endpoint": "http://[example.com]:8080"},
        "spec.endpoint",
        "endpoint must be 'embedded' or the URL of an endpoint without project and path",
    ),
    "position-before-all-time": (
        {"startPosition": {"from": "Timestamp", "timestamp": "1970-01-01T00:00:00Z"}},
        "spec.startPosition.timestamp",
        "timestamp must be after 1970-01-01T00:00:00Z",
    ),
    "position-without-a-timestamp": (
        {"startPosition": {"from": "Timestamp"}},
        "spec.startPosition",
        "timestamp is required with from: Timestamp and not allowed otherwise",
    ),
    "position-end-with-a-timestamp": (
        {"startPosition": {"from": "End", "timestamp": "2026-01-31T08:00:00Z"}},
        "spec.startPosition",
        "timestamp is required with from: Timestamp and not allowed otherwise",
    ),
    "timeout-under-two-heartbeats": (
        {"heartbeatIntervalSeconds": 10, "timeoutSeconds": 19},
        "spec.timeoutSeconds",
        "timeoutSeconds must be at least twice heartbeatIntervalSeconds",
    ),
    "sink-is-the-source": (
        {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "access"}}}},
        "spec.pipeline",
        "the sink must not be the logstore that is consumed",
    ),
}

RULES |= (
    PIPELINE_RULES
    | failure_cases.RULES
    | sink_cases.RULES
    | spark_cases.RULES
    | subscription_cases.RULES
    | {
        "sink-is-the-source-of-a-named-project": (
            {"pipeline": {"sink": {"parquet": None, "logstore": {"project": "demo", "name": "access"}}}},
            "spec.pipeline",
            "the sink must not be the logstore that is consumed",
        ),
        "log-in-a-folder-of-no-volume": (
            {"worker": {"log": {"file": {"path": "logs"}}}},
            "spec.worker.log.file.path",
            "path is a folder inside a volume; set volumeClaim, too",
        ),
        "log-that-fills-the-state-volume": (
            {"worker": {"log": {"file": {"maxSizeMiB": 100}}}},
            "spec.worker.log.file.maxSizeMiB",
            "without volumeClaim, maxSizeMiB * (maxBackups + 1) must be at most 1024",
        ),
        "to-zero-without-auto": (
            {"scaling": {"scaleToZero": {}}},
            "spec.scaling",
            "scaleToZero requires mode Auto and minReplicas 0",
        ),
        "to-zero-above-a-minimum": (
            {"scaling": {"mode": "Auto", "minReplicas": 1, "scaleToZero": {}}},
            "spec.scaling",
            "scaleToZero requires mode Auto and minReplicas 0",
        ),
        "rate-of-almost-zero": (
            {"scaling": {"workerCapacity": "0.99m"}},
            "spec.scaling.workerCapacity",
            "workerCapacity must be from 1m to 1M",
        ),
        "rate-of-too-much": (
            {"scaling": {"workerCapacity": "1001k"}},
            "spec.scaling.workerCapacity",
            "workerCapacity must be from 1m to 1M",
        ),
        "min-shards-above-max": (
            {"scaling": {"shards": {"minShards": 9, "maxShards": 8}}},
            "spec.scaling.shards",
            "minShards must not be greater than maxShards",
        ),
        "variable-without-a-source": (
            {"worker": {"env": [{"name": "A", "valueFrom": {}}]}},
            "spec.worker.env[0].valueFrom",
            "exactly one source must be set: secretKeyRef or configMapKeyRef",
        ),
        "variable-with-two-sources": (
            {
                "worker": {
                    "env": [
                        {
                            "name": "A",
                            "valueFrom": {
                                "secretKeyRef": {"name": "s", "key": "k"},
                                "configMapKeyRef": {"name": "c", "key": "k"},
                            },
                        }
                    ]
                }
            },
            "spec.worker.env[0].valueFrom",
            "exactly one source must be set: secretKeyRef or configMapKeyRef",
        ),
        "variable-with-value-and-source": (
            {
                "worker": {
                    "env": [
                        {"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                    ]
                }
            },
            "spec.worker.env[0]",
            "value and valueFrom must not both be set",
        ),
        "variable-of-ours": (
            {"worker": {"env": [{"name": "LOGHUB_CONSUMER", "value": "me"}]}},
            "spec.worker.env[0].name",
            "names that begin with LOGHUB_ are reserved for the worker",
        ),
        "reset-to-no-time": (
            {"resetCheckpoints": {"to": "Timestamp", "nonce": "1"}},
            "spec.resetCheckpoints",
            "timestamp is required with to: Timestamp and not allowed otherwise",
        ),
        "reset-to-begin-with-a-time": (
            {"resetCheckpoints": {"to": "Begin", "timestamp": "2026-01-31T08:00:00Z", "nonce": "1"}},
            "spec.resetCheckpoints",
            "timestamp is required with to: Timestamp and not allowed otherwise",
        ),
        "reset-before-all-time": (
            {"resetCheckpoints": {"to": "Timestamp", "timestamp": "1969-12-31T23:59:59Z", "nonce": "1"}},
            "spec.resetCheckpoints.timestamp",
            "timestamp must be after 1970-01-01T00:00:00Z",
        ),
        "reset-to-end-with-checkpoints": (
            {"resetCheckpoints": {"to": "End", "configMapName": "kept", "nonce": "1"}},
            "spec.resetCheckpoints",
            "configMapName is required with to: ConfigMap and not allowed otherwise",
        ),
        "reset-without-checkpoints": (
            {"resetCheckpoints": {"to": "ConfigMap", "nonce": "1"}},
            "spec.resetCheckpoints",
            "configMapName is required with to: ConfigMap and not allowed otherwise",
        ),
    }
)

ACCEPTED: dict[str, Document] = (
    failure_cases.ACCEPTED
    | sink_cases.ACCEPTED
    | spark_cases.ACCEPTED
    | subscription_cases.ACCEPTED
    | {
        "minimal": {},
        "time": {"startPosition": {"from": "Timestamp", "timestamp": "2026-01-31T08:00:00+08:00"}},
        "real-endpoint": {"endpoint": "https://cn-hangzhou.log.aliyuncs.com"},
        "loopback-endpoint": {"endpoint": "http://127.0.0.1:8080"},
        "endpoint-of-IPv6": {"endpoint": "http://[fd00::7]:8080"},
        "endpoint-of-IPv4-in-IPv6": {"endpoint": "https://[64:FF9B::192.0.2.7]/"},
        "timeout-of-two-heartbeats": {"heartbeatIntervalSeconds": 10, "timeoutSeconds": 20},
        "one-number-of-workers": {"scaling": {"minReplicas": 3, "maxReplicas": 3}},
        "one-number-of-shards": {"scaling": {"shards": {"minShards": 8, "maxShards": 8}}},
        "greatest-rate": {"scaling": {"workerCapacity": "1M"}},
        "whole-rate": {"scaling": {"workerCapacity": 250}},
        "least-rate": {"scaling": {"workerCapacity": "0.001"}},
        "python": {"pipeline": {"sql": None, "python": {"function": "enrich.lines:run"}}},
        "python-of-a-config-map": {
            "pipeline": {"sql": None, "python": {"function": "a:b", "configMap": {"name": "c"}}}
        },
        "python-of-a-claim": {
            "pipeline": {
                "sql": None,
                "python": {"function": "a:b", "volumeClaim": {"name": "v", "path": "a/b"}},
            }
        },
        "undo": {"resetCheckpoints": {"to": "ConfigMap", "configMapName": "kept", "nonce": "2"}},
        "auto": {"scaling": {"mode": "Auto", "maxReplicas": 8, "workerCapacity": "12.5", "scaleToZero": {}}},
        "variables": {
            "worker": {
                "env": [
                    {"name": "A", "value": ""},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "b.txt"}}},
                ],
                "podTemplate": {"spec": {"nodeSelector": {"disk": "ssd"}}},
            }
        },
        "resetCheckpoints": {
            "resetCheckpoints": {
                "to": "Timestamp",
                "timestamp": "2026-01-31T08:00:00Z",
                "shards": [0, 3],
                "nonce": "again-2",
            }
        },
        "whole-cpus": {"worker": {"resources": {"requests": {"cpu": 1, "memory": "2Gi"}}}},
    }
)


def test_every_rule_of_the_crd_has_a_case() -> None:
    tried = {(path, message) for _, path, message in RULES.values()} | {("", NAME_RULE)}
    tried |= {(f"spec.{field}", immutable(field)) for *_, field in CHANGES.values()}
    rules = [
        (place(path) + rule.get("fieldPath", ""), rule["message"])
        for path, schema in nodes(root())
        for rule in schema.get("x-kubernetes-validations", ())
    ]
    assert [
        (at, reported)
        for at, reported in rules
        if not any(at == path and reported.startswith(text) for path, text in tried)
    ] == []
    assert {at for at, _ in rules} == {path for path, _ in tried}


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_reported_at_its_field(name: str) -> None:
    spec, path, message = RULES[name]
    assert any(problem.startswith(f"{path}: {message}") for problem in problems(document(spec)))


@pytest.mark.parametrize("name", RULES)
def test_the_apiserver_reports_a_broken_rule_with_the_same_message(name: str, server: Apiserver) -> None:
    spec, path, message = RULES[name]
    refused = server.apply(document(spec, name=f"r-{uuid.uuid4().hex[:8]}"))
    assert f"{path}: Invalid value" in refused
    assert message in refused


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_valid_object_is_accepted(name: str) -> None:
    parse_resource(document(ACCEPTED[name]))


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_apiserver_accepts_a_valid_object(name: str, server: Apiserver) -> None:
    assert server.apply(document(ACCEPTED[name], name=f"a-{uuid.uuid4().hex[:8]}")) == ""


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ({"replica": 2}, "; did you mean replicas?"),
        ({"worker": {"env": [{"name": "A", "valu": "b"}]}}, "; did you mean value?"),
        ({"pipeline": {"sink": {"parquett": {}}}}, "; did you mean parquet?"),
        ({"nothingLikeIt": 1}, '"spec.nothingLikeIt"'),
    ],
)
def test_a_misspelt_field_is_answered_with_what_may_be_meant(spec: dict[str, Any], hint: str) -> None:
    assert any(one.endswith(hint) for one in problems(document(spec)))


def test_the_parser_and_the_apiserver_both_name_an_unknown_field(server: Apiserver) -> None:
    value = document({"pipeline": {"sqll": "SELECT 1"}}, name=f"u-{uuid.uuid4().hex[:8]}")
    assert 'unknown field "spec.pipeline.sqll"; did you mean sql?' in "\n".join(problems(value))
    # Server-side apply says it its own way; a client-side one as we do.
    refused = server.run("create", "-f", "-", text=yaml.safe_dump(value))
    assert refused.returncode != 0
    assert 'unknown field "spec.pipeline.sqll"' in refused.stderr
    assert server.apply(value) != ""


@pytest.mark.parametrize("bad", ["with.dot", "x" * 53, "1st-of-all"])
def test_both_reject_a_name_that_no_pod_or_service_can_have(bad: str, server: Apiserver) -> None:
    assert NAME_RULE in "\n".join(problems(document(name=bad)))
    assert NAME_RULE in server.apply(document(name=bad))


def test_both_reject_a_date_that_does_not_exist(server: Apiserver) -> None:
    value = document(
        {"startPosition": {"from": "Timestamp", "timestamp": "2026-02-30T00:00:00Z"}},
        name=f"d-{uuid.uuid4().hex[:8]}",
    )
    assert problems(value)
    assert server.apply(value) != ""


def test_the_apiserver_sets_the_same_defaults(server: Apiserver) -> None:
    value = document(name=f"f-{uuid.uuid4().hex[:8]}")
    assert server.apply(value) == ""
    stored = yaml.safe_load(server.must("get", "lhcg", value["metadata"]["name"], "-o", "yaml"))
    assert stored["spec"] == parse_resource(value).spec.to_dict()


def test_all_broken_rules_are_reported_together() -> None:
    spec = {"endpoint": "x", "timeoutSeconds": 2, "scaling": {"minReplicas": 2, "maxReplicas": 1}}
    paths = {problem.split(":")[0] for problem in problems(document({**spec, "scaling": None}))}
    assert paths == {"spec.endpoint", "spec.timeoutSeconds"}


def test_each_example_contains_one_valid_group() -> None:
    for example in sorted((ROOT / "deploy" / "examples").glob("*.yaml")):
        (result,) = resources_in(example.read_text())
        parse_resource(result)
