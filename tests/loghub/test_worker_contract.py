"""Operator and worker of two releases: settings and statuses with one field more, in both directions."""

import hashlib
import json
from typing import Any

import msgspec
import pytest

from loghub.contract import processor, sinks, worker
from loghub.contract import worker as contract
from loghub.contract.worker import (
    CONTRACT_VERSION,
    ExecutorSettings,
    IncompleteState,
    KeptState,
    OnFailure,
    ShardProgress,
    SqlPipeline,
    UnsupportedContractError,
    WorkerConfig,
    WorkerStatus,
    decode_settings,
    encode_settings,
)

CONFIG = WorkerConfig(
    contract_version=CONTRACT_VERSION,
    endpoint="http://loghub.svc",
    project="demo",
    logstore="access",
    consumer_group="access",
    heartbeat_interval_s=5.0,
    timeout_s=30,
    start_position="begin",
    fetch_interval_s=1.0,
    max_log_groups=1000,
    max_bytes=1 << 26,
    checkpoint_interval_s=0.0,
    trigger_interval_s=1.0,
    pipeline=SqlPipeline(text="SELECT 1"),
    sink=sinks.ParquetSink(path="/sink/x"),
    cores=1,
    spark_memory=None,
    spark_conf={},
    drain_timeout_s=30.0,
)
STATUS = WorkerStatus(
    consumer="w-0",
    phase="running",
    reason="",
    message="",
    rows_written=0,
    last_heartbeat_age_s=1.0,
    shards=[ShardProgress(shard=0, cursor=None, checkpoint=None, logs=0, lag_s=None, draining=False)],
    written_at=1.0,
)


class NewerSink(sinks.ParquetSink, kw_only=True, tag="parquet"):
    """Of the next release: one setting more, which is not used."""

    compression: str = "snappy"


class NewerConfig(WorkerConfig, kw_only=True):
    """Of the next release: one setting more."""

    new_setting: int = 5


class NewerStatus(WorkerStatus, kw_only=True):
    """Of the next release: one field more."""

    new_field: int = 5


def widened(config: WorkerConfig, **more: Any) -> NewerConfig:
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    sink = NewerSink(path="/sink/x", **more.pop("sink", {}))
    return NewerConfig(**{**fields, "sink": sink}, **more)


def test_settings_are_read_back() -> None:
    changed = msgspec.structs.replace(CONFIG, batch_timeout_s=5.0, on_failure=OnFailure(policy="Skip"))
    for config in (CONFIG, changed):
        assert decode_settings(encode_settings(config)) == (config, ())


def test_an_unused_setting_of_the_next_release_changes_no_byte() -> None:
    """Their hash is part of the revision, so another byte would restart every worker of every group."""
    assert encode_settings(widened(CONFIG)) == encode_settings(CONFIG)
    assert encode_settings(widened(CONFIG, new_setting=6)) != encode_settings(CONFIG)


def test_a_setting_that_equals_its_default_changes_no_byte() -> None:
    """Whatever object it is: the operator computes its values from the object in the cluster."""
    equal = msgspec.structs.replace(
        CONFIG, batch_timeout_s=float("600"), on_failure=OnFailure(max_per_hour=int("100"))
    )
    assert encode_settings(equal) == encode_settings(CONFIG)
    skip = msgspec.structs.replace(CONFIG, on_failure=OnFailure(policy="Skip", max_per_hour=int("1000")))
    assert json.loads(encode_settings(skip))["on_failure"] == {"policy": "Skip", "max_per_hour": 1000}


def test_the_bytes_of_the_first_settings_never_change() -> None:
    digest = hashlib.sha256(encode_settings(CONFIG)).hexdigest()[:16]
    assert digest == "d6302f4a53f99052", (
        "a release that encodes unchanged settings in another way restarts all"
    )


def test_every_setting_but_those_of_the_first_contract_has_a_default() -> None:
    """A worker or an operator of the release before does not know it."""
    required = {
        kind: {field.name for field in msgspec.structs.fields(kind) if field.required} for kind in _structs()
    }
    assert required == {
        WorkerConfig: set(json.loads(encode_settings(CONFIG))),
        sinks.ParquetSink: {"path"},
        sinks.JsonSink: {"path"},
        sinks.DeltaSink: {"path"},
        sinks.S3Settings: set(),
        sinks.ConsoleSink: {"rows"},
        sinks.LogstoreSink: {"project", "logstore"},
        sinks.PostgresqlSink: {"host", "database", "table"},
        sinks.KafkaSink: {"bootstrap_servers"},
        sinks.SparkSink: {"format"},
        contract.SqlPipeline: {"text"},
        contract.PythonPipeline: {"function"},
        contract.CopyPipeline: set(),
        processor.ProcessorPipeline: {"factory"},
        processor.RetryLogstore: {"logstore"},
        processor.ProcessorSubscription: {"type"},
        sinks.FileRoll: {"target_bytes", "max_delay_s"},
        ExecutorSettings: {"cores", "memory", "memory_overhead", "cpu", "pod"},
        sinks.NoSink: set(),
        contract.DeadLetterLogstore: {"project", "logstore"},
        contract.DeadLetterFolder: {"path"},
        contract.OnFailure: set(),
        worker.LogSettings: set(),
        worker.LogFile: set(),
    }


def _structs() -> list[Any]:
    """Every structure that is part of the settings."""
    modules = (contract, worker, processor, sinks)
    kinds = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    reports = (
        ShardProgress,
        WorkerStatus,
        contract.FailingShard,
        IncompleteState,
        KeptState,
        contract.ProcessProgress,
        contract.SkippedLogGroups,
    )
    structs = [one for one in kinds if issubclass(one, msgspec.Struct) and one not in reports]
    public = [one for one in structs if not one.__name__.startswith("_")]
    assert all(one.__struct_config__.omit_defaults for one in public)
    assert not any(one.__struct_config__.forbid_unknown_fields for one in public)
    return public


def test_a_worker_names_the_settings_that_it_does_not_know() -> None:
    newer = widened(CONFIG, new_setting=6, sink={"compression": "zstd"})
    config, ignored = decode_settings(encode_settings(newer))
    assert config == CONFIG
    assert ignored == ("new_setting", "sink.compression")


@pytest.mark.parametrize("version", [CONTRACT_VERSION + 1, 0])
def test_settings_of_another_contract_are_refused_with_what_to_do(version: int) -> None:
    other = json.loads(encode_settings(CONFIG)) | {"contract_version": version}
    for settings in (other, {"contract_version": version, "everything": "else is different"}):
        with pytest.raises(UnsupportedContractError) as caught:
            decode_settings(json.dumps(settings).encode())
        message = str(caught.value)
        assert f"contract {version}" in message
        assert f"contract {CONTRACT_VERSION}" in message
        assert "image" in message


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"contract_version": "one"}', '{"contract_version": 1}'])
def test_what_are_no_settings_is_an_error(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_settings(text.encode())


def test_settings_of_the_release_before_have_the_defaults() -> None:
    """An older operator with a newer worker."""
    newer = msgspec.json.decode(encode_settings(CONFIG), type=NewerConfig)
    assert newer.new_setting == 5


def test_a_status_of_another_release_is_read() -> None:
    fields = {name: getattr(STATUS, name) for name in STATUS.__struct_fields__}
    newer = NewerStatus(**fields)
    assert msgspec.json.decode(msgspec.json.encode(newer), type=WorkerStatus) == STATUS
    older = msgspec.json.decode(msgspec.json.encode(STATUS), type=NewerStatus)
    assert older == newer
    first = {"consumer", "phase", "reason", "message", "rows_written", "last_heartbeat_age_s", "shards"}
    required = {field.name for field in msgspec.structs.fields(WorkerStatus) if field.required}
    assert required == first | {"written_at"}


def test_a_phase_of_another_release_does_not_make_a_status_unreadable() -> None:
    failing = contract.FailingShard(shard=0, cursor="MQ==", state="parked", reason="X", attempts=1)
    status = msgspec.structs.replace(STATUS, phase="warming", failing=[failing])
    assert msgspec.json.decode(msgspec.json.encode(status), type=WorkerStatus) == status
