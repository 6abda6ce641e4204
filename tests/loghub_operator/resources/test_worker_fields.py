"""The fields of the spec that the worker carries out, as they are in its pod and its settings."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loghub.contract import sinks
from loghub.contract import worker as contract
from loghub.contract.worker import LogFile, LogSettings, encode_settings
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.model.observed import Placement, UserCodeFiles
from loghub_operator.resources import with_replicas, worker_spec
from loghub_operator.resources.metadata import code_in
from loghub_operator.resources.worker_config import config_hash, worker_config
from tests.loghub_operator.support.examples import Document, resource

PLACEMENT = Placement(
    endpoint="http://loghub.svc",
    sink_root="/sink",
    code_root="/code",
    dead_letter_root="/dead-letter",
    log_root="/log",
    needs_project_address=True,
)


def pod(group: LogHubConsumerGroup) -> Document:
    result = with_replicas(worker_spec(group, worker_config(group, PLACEMENT), image="i").stateful_set, 1)
    template: Document = result["spec"]["template"]["spec"]
    return template


def python(**source: Any) -> Document:
    return {"pipeline": {"sql": None, "python": {"function": "enrich:run", **source}}}


def test_every_field_of_a_batch_reaches_the_worker() -> None:
    group = resource(
        {"fetch": {"maxBytes": 70_000}, "checkpoint": {"intervalSeconds": 30}, "spark": {"memory": "2g"}}
    )
    config = worker_config(group, PLACEMENT)
    assert (config.max_bytes, config.checkpoint_interval_s, config.spark_memory) == (70_000, 30.0, "2g")
    assert config.pipeline == contract.SqlPipeline(text=group.spec.pipeline.sql or "")


@pytest.mark.parametrize(("checkpoint", "wanted"), [({}, 5.0), ({"intervalSeconds": 0}, 0.0)])
def test_checkpoints_are_five_seconds_apart_unless_the_object_says_otherwise(
    checkpoint: Document, wanted: float
) -> None:
    assert worker_config(resource({"checkpoint": checkpoint}), PLACEMENT).checkpoint_interval_s == wanted


@pytest.mark.parametrize(
    ("fetch", "wanted"),
    [
        ({"intervalSeconds": 3}, 3.0),
        ({"intervalMilliseconds": 200}, 0.2),
        ({"intervalSeconds": 3, "intervalMilliseconds": 200}, 0.2),
    ],
)
def test_an_interval_in_milliseconds_takes_precedence(fetch: Document, wanted: float) -> None:
    assert worker_config(resource({"fetch": fetch}), PLACEMENT).fetch_interval_s == wanted


@pytest.mark.parametrize(
    ("spark", "given", "wanted"),
    [
        ({}, 64 << 20, (512 << 20) // 10),
        ({"cores": 2}, 64 << 20, (512 << 20) // 20),
        ({"memory": "1g"}, 64 << 20, 64 << 20),
        ({}, 100_000, 100_000),
    ],
)
def test_a_table_gets_batches_that_fit_into_the_heap(spark: Document, given: int, wanted: int) -> None:
    table = {"host": "h", "database": "d", "table": "t"}
    sink = {"parquet": None, "postgresql": table, "credentialsSecret": {"name": "c"}}
    group = resource({"pipeline": {"sink": sink}, "spark": spark, "fetch": {"maxBytes": given}})
    assert worker_config(group, PLACEMENT).max_bytes == wanted


@pytest.mark.parametrize(
    ("sink", "wanted", "mounted"),
    [
        ({"json": {"path": "a/b", "volumeClaim": "c"}}, sinks.JsonSink(path="/sink/a/b"), True),
        (
            {"json": {"url": "s3://bucket/a/b"}},
            sinks.JsonSink(path="s3://bucket/a/b"),
            False,
        ),
        (
            {"kafka": {"bootstrapServers": "b:1"}},
            sinks.KafkaSink(bootstrap_servers="b:1"),
            False,
        ),
        (
            {
                "json": {
                    "url": "s3://bucket",
                    "s3": {"endpoint": "http://m:1", "region": "r", "virtualHosted": True, "allowHttp": True},
                }
            },
            sinks.JsonSink(
                path="s3://bucket",
                s3=sinks.S3Settings(endpoint="http://m:1", region="r", virtual_hosted=True, allow_http=True),
            ),
            False,
        ),
        (
            {
                "kafka": {
                    "bootstrapServers": "b:1",
                    "topic": "t",
                    "tls": True,
                    "sasl": "SCRAM-SHA-256",
                    "compression": "zstd",
                    "maxRequestBytes": 2048,
                },
                "credentialsSecret": {"name": "user"},
            },
            sinks.KafkaSink(
                bootstrap_servers="b:1",
                topic="t",
                tls=True,
                sasl="SCRAM-SHA-256",
                compression="zstd",
                max_request_bytes=2048,
            ),
            False,
        ),
        (
            {"spark": {"format": "csv", "options": {"path": "/a"}}},
            sinks.SparkSink(format="csv", options={"path": "/a"}),
            False,
        ),
        (
            {
                "delta": {
                    "path": "a/b",
                    "volumeClaim": "c",
                    "partitionBy": ["day"],
                    "schemaEvolution": "AddColumns",
                }
            },
            sinks.DeltaSink(path="/sink/a/b", partition_by=("day",), add_columns=True),
            True,
        ),
        (
            {"json": {"url": "s3://bucket/a", "partitionBy": ["day"], "roll": {}}},
            sinks.JsonSink(
                path="s3://bucket/a",
                partition_by=("day",),
                roll=sinks.FileRoll(target_bytes=128 << 20, max_delay_s=300.0),
            ),
            False,
        ),
        (
            {
                "parquet": {
                    "path": "a",
                    "volumeClaim": "c",
                    "partitionBy": ["day"],
                    "roll": {"targetBytes": 1 << 20, "maxDelaySeconds": 5},
                }
            },
            sinks.ParquetSink(
                path="/sink/a",
                partition_by=("day",),
                roll=sinks.FileRoll(target_bytes=1 << 20, max_delay_s=5.0),
            ),
            True,
        ),
        ({"delta": {"url": "s3://bucket/a"}}, sinks.DeltaSink(path="s3://bucket/a"), False),
        ({"console": {}}, sinks.ConsoleSink(rows=20), False),
        (
            {
                "postgresql": {"host": "h", "database": "d", "schema": "s", "table": "t", "port": 1},
                "credentialsSecret": {"name": "c"},
            },
            sinks.PostgresqlSink(host="h", port=1, database="d", schema="s", table="t"),
            False,
        ),
    ],
)
def test_each_sink_reaches_the_worker(sink: Document, wanted: sinks.Sink, mounted: bool) -> None:
    group = resource({"pipeline": {"sink": {"parquet": None, **sink}}})
    assert worker_config(group, PLACEMENT).sink == wanted
    assert ("sink" in {one["name"] for one in pod(group)["volumes"]}) is mounted


@pytest.mark.parametrize("in_order", [False, True])
def test_a_group_in_order_keeps_the_order_of_keys_in_kafka(in_order: bool) -> None:
    kafka = {"bootstrapServers": "b:1"}
    group = resource({"inOrder": in_order, "pipeline": {"sink": {"parquet": None, "kafka": kafka}}})
    sink = worker_config(group, PLACEMENT).sink
    assert isinstance(sink, sinks.KafkaSink)
    assert sink.keep_order is in_order


def test_the_credentials_of_a_sink_are_mounted_where_its_variable_says() -> None:
    group = resource({"pipeline": {"sink": {"credentialsSecret": {"name": "bucket"}}}})
    [volume] = [one for one in pod(group)["volumes"] if one.get("secret", {}).get("secretName") == "bucket"]
    [container] = pod(group)["containers"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == volume["name"]]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert (mount["readOnly"], variables[contract.ENV_SINK_CREDENTIALS_DIR]) == (True, mount["mountPath"])


def test_without_credentials_of_a_sink_there_is_no_variable() -> None:
    [container] = pod(resource())["containers"]
    assert contract.ENV_SINK_CREDENTIALS_DIR not in {one["name"] for one in container["env"]}


@pytest.mark.parametrize(
    ("target", "wanted", "mounted"),
    [
        (
            {"logstore": {"name": "rejected"}},
            contract.DeadLetterLogstore(project="demo", logstore="rejected"),
            False,
        ),
        (
            {"logstore": {"project": "other", "name": "rejected"}},
            contract.DeadLetterLogstore(project="other", logstore="rejected"),
            False,
        ),
        (
            {"folder": {"path": "a/b", "volumeClaim": "c"}},
            contract.DeadLetterFolder(path="/dead-letter/a/b"),
            True,
        ),
    ],
)
def test_the_failure_policy_reaches_the_worker(
    target: Document, wanted: contract.DeadLetterLogstore | contract.DeadLetterFolder, mounted: bool
) -> None:
    on_failure = {"policy": "DeadLetter", "maxAttempts": 2, "maxPerHour": 7, "deadLetter": target}
    group = resource({"pipeline": {"batchTimeoutSeconds": 60, "onFailure": on_failure}})
    config = worker_config(group, PLACEMENT)
    assert config.batch_timeout_s == 60.0
    assert config.on_failure == contract.OnFailure(
        policy="DeadLetter", max_attempts=2, max_consecutive=10, max_per_hour=7, dead_letter=wanted
    )
    assert ("dead-letter" in {one["name"] for one in pod(group)["volumes"]}) is mounted
    mounts = {one["name"]: one["mountPath"] for one in pod(group)["containers"][0]["volumeMounts"]}
    assert mounts.get("dead-letter") == ("/dead-letter" if mounted else None)


@pytest.mark.parametrize(
    ("file", "folder", "claim"),
    [
        ({}, None, None),
        ({"volumeClaim": "logs"}, "/log", "logs"),
        ({"volumeClaim": "logs", "path": "a/b"}, "/log/a/b", "logs"),
    ],
)
def test_the_log_reaches_the_worker(file: Document, folder: str | None, claim: str | None) -> None:
    file = {"maxSizeMiB": 5, "maxBackups": 3, "compress": True, **file}
    group = resource({"worker": {"log": {"level": "Debug", "format": "JSON", "file": file}}})
    assert worker_config(group, PLACEMENT).log == LogSettings(
        level="Debug",
        format="JSON",
        file=LogFile(folder=folder, max_size_mib=5, max_backups=3, compress=True),
    )
    claims = {one["name"]: one.get("persistentVolumeClaim") for one in pod(group)["volumes"]}
    assert claims.get("log") == (claim and {"claimName": claim})
    mounts = {one["name"]: one for one in pod(group)["containers"][0]["volumeMounts"]}
    assert mounts.get("log") == (claim and {"name": "log", "mountPath": "/log"})


def test_settings_with_their_defaults_are_not_written() -> None:
    """So a new setting that nobody uses restarts no worker, and workers of an earlier release take it."""
    config = worker_config(resource(), PLACEMENT)
    written = msgspec.json.decode(encode_settings(config))
    assert {"batch_timeout_s", "on_failure", "log"}.isdisjoint(written)
    assert msgspec.json.decode(encode_settings(config), type=contract.WorkerConfig) == config
    other = worker_config(resource({"pipeline": {"batchTimeoutSeconds": 60}}), PLACEMENT)
    assert msgspec.json.decode(encode_settings(other))["batch_timeout_s"] == 60.0


@pytest.mark.parametrize("in_order", [False, True])
def test_a_logstore_sink_keeps_the_order_if_the_group_consumes_in_order(in_order: bool) -> None:
    sink = {"parquet": None, "logstore": {"project": "other", "name": "copy"}}
    config = worker_config(resource({"inOrder": in_order, "pipeline": {"sink": sink}}), PLACEMENT)
    assert config.sink == sinks.LogstoreSink(project="other", logstore="copy", keep_order=in_order)


def test_a_copy_has_no_query() -> None:
    sink = {"parquet": None, "logstore": {"name": "ls", "copy": True}}
    config = worker_config(resource({"inOrder": True, "pipeline": {"sql": None, "sink": sink}}), PLACEMENT)
    assert config.pipeline == contract.CopyPipeline()
    assert config.sink == sinks.LogstoreSink(project="demo", logstore="ls")


def test_code_of_a_config_map_is_part_of_the_settings() -> None:
    """So a change of it is a change of settings, and a pod of before goes on with what it had."""
    group = resource(python(configMap={"name": "enrich"}))
    config_map = {"data": {"enrich.py": "def run(logs): return logs", "more.py": ""}}
    here = replace(PLACEMENT, code=code_in(group, config_map))
    config = worker_config(group, here)
    assert config.pipeline == contract.PythonPipeline(function="enrich:run", files=config_map["data"])
    changed = replace(
        PLACEMENT, code=UserCodeFiles(files={"enrich.py": "def run(logs): return logs.limit(1)"})
    )
    assert config_hash(worker_config(group, changed)) != config_hash(config)
    assert "code" not in {one["name"] for one in pod(group)["volumes"]}


@pytest.mark.parametrize(
    ("config_map", "says"),
    [
        (None, "there is no ConfigMap enrich in namespace default"),
        ({"data": {"other.py": ""}}, "ConfigMap enrich has no key enrich.py, which must contain enrich:run"),
        ({}, "ConfigMap enrich has no key enrich.py, which must contain enrich:run"),
        ({"binaryData": {"enrich.py": "AA=="}}, "ConfigMap enrich has binaryData; code is text, under data"),
    ],
)
def test_unusable_code_is_reported(config_map: Document | None, says: str) -> None:
    group = resource(python(configMap={"name": "enrich"}))
    assert code_in(group, config_map) == UserCodeFiles(error=says)


def test_code_of_a_claim_is_mounted_read_only() -> None:
    group = resource(python(volumeClaim={"name": "shared", "path": "lib/v1"}))
    config = worker_config(group, PLACEMENT)
    assert config.pipeline == contract.PythonPipeline(function="enrich:run", folder="/code/lib/v1")
    (mount,) = [one for one in pod(group)["containers"][0]["volumeMounts"] if one["name"] == "code"]
    assert mount == {"name": "code", "mountPath": "/code", "readOnly": True}
    (volume,) = [one for one in pod(group)["volumes"] if one["name"] == "code"]
    assert volume["persistentVolumeClaim"] == {"claimName": "shared"}


def test_code_in_the_image_needs_no_volume() -> None:
    group = resource(python())
    assert worker_config(group, PLACEMENT).pipeline == contract.PythonPipeline(function="enrich:run")
    assert "code" not in {one["name"] for one in pod(group)["volumes"]}


@pytest.mark.parametrize(
    ("spark", "given", "requested", "limit"),
    [
        ({}, {}, "1536Mi", "2Gi"),
        ({"memory": "2g"}, {}, "3Gi", "3584Mi"),
        ({"memory": "700m"}, {}, "1724Mi", "2236Mi"),
        ({"memory": "2g"}, {"limits": {"memory": "9Gi"}}, "9Gi", "9Gi"),
    ],
)
def test_the_workers_memory_follows_that_of_spark(
    spark: Document, given: Document, requested: str, limit: str
) -> None:
    group = resource({"spark": spark, "worker": {"resources": given}})
    result = pod(group)["containers"][0]["resources"]
    assert (result["requests"]["memory"], result["limits"]["memory"]) == (requested, limit)


def test_user_variables_come_first_and_secrets_are_references_only() -> None:
    key = {"name": "token", "key": "value"}
    group = resource(
        {"worker": {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": key}}]}}
    )
    env = pod(group)["containers"][0]["env"]
    assert env[:2] == [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": key}}]
    assert env[2]["name"] == contract.ENV_CONSUMER
    assert worker_config(group, PLACEMENT) == worker_config(resource(), PLACEMENT), (
        "they are no settings of ours"
    )
