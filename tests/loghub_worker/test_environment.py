"""The worker's settings from the environment, its status and its metrics."""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from loghub.clock import SystemClock
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import ConsoleSink, DeltaSink, NoSink, ParquetSink
from loghub.contract.worker import (
    ENV_CONFIG,
    SPARK_MASTER,
    SPARK_MEMORY,
    SPARK_OWN,
    STATUS_FRESH_S,
    FailingShard,
    SkippedLogGroups,
    WorkerStatus,
)
from loghub.wire.cursor import encode
from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.failure.policy import Cause, FailingShards, Failure, FailureSettings, Policy
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import Membership, MembershipTimings, SendHeartbeat, ShutdownMode
from loghub_worker.__main__ import end_children
from loghub_worker.metrics import Counter, Figures, MetricsServer, answer
from loghub_worker.processing.processor_worker import consumer_settings
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.spark_session import spark_settings, start_spark
from loghub_worker.settings import BadSettingsError, is_drain_requested, read_settings
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.logstore.sink import TargetLogstore, WriteOptions
from loghub_worker.sink.sinks import make_sink
from loghub_worker.source import SourceOptions
from loghub_worker.status import Moment, QueryProgress, ShardReadings, member_of, status_of
from loghub_worker.worker import WorkerRuntime
from tests.loghub_worker.support import SOURCE, worker_config


def environment(folder: Path) -> dict[str, str]:
    config = folder / "config.json"
    config.write_bytes(msgspec.json.encode(worker_config("http://x", ParquetSink(path="/sink"))))
    return {
        ENV_CONFIG: str(config),
        "LOGHUB_CONSUMER": "w-0",
        "LOGHUB_CREDENTIALS_DIR": "/keys",
        "LOGHUB_STATE_DIR": str(folder),
        "LOGHUB_STATUS_FILE": str(folder / "status"),
    }


def test_settings_are_read_without_the_optional_variables(tmp_path: Path) -> None:
    settings = read_settings(environment(tmp_path))
    assert settings.config == worker_config("http://x", ParquetSink(path="/sink"))
    assert (settings.drain_file, settings.metrics_address, settings.termination_log) == (None, None, None)


@pytest.mark.parametrize("name", [ENV_CONFIG, "LOGHUB_CONSUMER", "LOGHUB_STATE_DIR"])
def test_missing_variable_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettingsError, match=name):
        read_settings({key: value for key, value in environment(tmp_path).items() if key != name})


@pytest.mark.parametrize(("given", "client"), [("", "http"), ("http", "http"), ("sdk", "sdk")])
def test_the_client_of_the_environment_is_that_of_every_connection(
    given: str, client: str, tmp_path: Path
) -> None:
    """Those of the driver, in Spark's processes those of the source and of a logstore as sink, and those of a
    worker with processors."""
    settings = read_settings(environment(tmp_path) | {"LOGHUB_CLIENT": given})
    address = settings.address
    assert (address.client, address.endpoint, address.credentials_dir) == (client, "http://x", "/keys")
    query = QuerySettings(
        config=settings.config,
        consumer="w-0",
        address=address,
        exchange=ExchangeFiles(tmp_path),
        scratch=tmp_path,
        journal=tmp_path,
    )
    assert SourceOptions.from_option(query.source_options().to_option()).address == address
    place = TargetLogstore(address=address, name="a")
    options = WriteOptions(target=place, source=place, count_file="c")
    assert WriteOptions.from_option(options.to_option()) == options
    config = worker_config("http://x", NoSink(), pipeline=ProcessorPipeline(factory="a:B"))
    assert consumer_settings(replace(settings, config=config)).client == client


def test_a_client_that_there_is_not_is_refused_with_the_variable(tmp_path: Path) -> None:
    with pytest.raises(BadSettingsError, match=r"LOGHUB_CLIENT: .*'auto'; it must be one of http, sdk"):
        read_settings(environment(tmp_path) | {"LOGHUB_CLIENT": "auto"})


@pytest.mark.parametrize(
    ("text", "requested"),
    [("true", True), ("true\n", True), ("false", False), ("", False), ("TRUE", False), ("leave", False)],
)
def test_drain_file(tmp_path: Path, text: str, requested: bool) -> None:
    (tmp_path / "drain").write_text(text)
    assert is_drain_requested(tmp_path / "drain") is requested
    assert is_drain_requested(tmp_path / "absent") is False


def test_user_settings_of_spark_override_and_java_options_are_joined(tmp_path: Path) -> None:
    conf = {"spark.sql.session.timeZone": "Asia/Shanghai", "spark.driver.extraJavaOptions": "-Dx=1"}
    settings = spark_settings(worker_config("http://x", ParquetSink(path="/s"), spark_conf=conf), tmp_path)
    assert settings["spark.sql.session.timeZone"] == "Asia/Shanghai"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dx=1")
    assert "-XX:+UseSerialGC" in settings["spark.driver.extraJavaOptions"]
    assert "SharedArchiveFile" not in settings["spark.driver.extraJavaOptions"]


def test_the_memory_of_spark_is_set_by_its_field(tmp_path: Path) -> None:
    def memory(field: str | None) -> str:
        config = worker_config("http://x", ParquetSink(path="/s"), spark_memory=field)
        return spark_settings(config, tmp_path)["spark.driver.memory"]

    assert (memory(None), memory("1g")) == ("512m", "1g")


@pytest.mark.parametrize(
    "name", [SPARK_MASTER, SPARK_MEMORY, *SPARK_OWN, "spark.ui.enabled", "spark.ui.port"]
)
def test_settings_that_only_the_worker_sets_are_ignored_with_a_warning(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def settings(conf: dict[str, str]) -> dict[str, str]:
        return spark_settings(worker_config("http://x", ParquetSink(path="/s"), spark_conf=conf), tmp_path)

    assert settings({name: "theirs"}) == settings({})
    assert name in capsys.readouterr().out


def test_each_java_option_is_quoted_because_a_folder_may_contain_a_space(tmp_path: Path) -> None:
    config = worker_config("http://x", ParquetSink(path="/s"), spark_conf={})
    settings = spark_settings(config, tmp_path / "a b", class_archive=tmp_path / "c d")
    options = shlex.split(settings["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={tmp_path}/a b/tmp" in options
    assert f"-XX:SharedArchiveFile={tmp_path}/c d" in options


def test_missing_java_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(FatalError, match="install openjdk-17") as raised:
        start_spark(worker_config("http://x", ParquetSink(path="/s")), tmp_path)
    assert raised.value.reason == "JavaMissing"
    assert "\n" not in str(raised.value)


def test_a_stop_whose_exception_was_lost_ends_the_worker_after_sparks_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = environment(tmp_path)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    Path(variables[ENV_CONFIG]).write_bytes(msgspec.json.encode(worker_config("http://x", sink)))
    membership = WorkerRuntime(read_settings(variables), SystemClock())

    def start(*_: object, **__: object) -> None:
        with contextlib.suppress(BaseException):  # as a hook at a fork does
            membership.request_stop()

    monkeypatch.setattr("loghub_worker.worker.start_spark", start)
    monkeypatch.setattr("loghub_worker.worker.make_transform", lambda *_: pytest.fail("the start continued"))
    membership.run()
    assert membership.status().phase == "starting"


def test_requesting_a_stop_acquires_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal handler interrupts the main thread, so it would wait forever for a lock of that thread."""
    membership = WorkerRuntime(read_settings(environment(tmp_path)), SystemClock())

    def acquired(*_: object, **__: object) -> None:
        raise AssertionError("the interrupted thread may hold this lock")

    with monkeypatch.context() as interrupted:
        for lock in (threading.Event, threading.Condition):
            for name in ("set", "wait", "notify_all", "__enter__"):
                if hasattr(lock, name):
                    interrupted.setattr(lock, name, acquired)
        membership.request_stop()
    membership.run()
    assert membership.status().phase == "starting", "the request is respected: nothing has begun"


@pytest.mark.parametrize("path", ["s3a://bucket/x", "oss://bucket/x", "hdfs://host/x", "relative/path"])
def test_a_sink_path_that_is_not_an_absolute_folder_is_refused(path: str) -> None:
    config = worker_config("http://x", ParquetSink(path=path))
    with pytest.raises(InvalidSinkError, match=r"absolute path|mounted file system"):
        make_sink(config, consumer="w-0", source=SOURCE, scratch=Path("/x"))


@pytest.mark.parametrize("kind", [ParquetSink, DeltaSink])
def test_a_start_waits_at_a_folder_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Some network file systems have none. On a read-only or full one, an earlier step fails the same way."""

    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    def stop(_: float) -> None:
        seen.append(worker.status())
        worker.request_stop()

    seen: list[WorkerStatus] = []
    variables = environment(tmp_path)
    sink = kind(path=str(tmp_path / "sink"))
    Path(variables[ENV_CONFIG]).write_bytes(msgspec.json.encode(worker_config("http://x", sink)))
    worker = WorkerRuntime(read_settings(variables), SystemClock())
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(worker._sink_start, "_wait", stop)
    monkeypatch.setattr(
        "loghub_worker.worker.start_spark", lambda *_, **__: pytest.fail("the start continued")
    )
    worker.run()
    assert [(one.phase, one.reason) for one in seen] == [("starting", "SinkUnavailable")]
    assert "Operation not supported" in seen[0].message
    assert [path.name for path in (tmp_path / "sink").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [(InvalidSinkError("no such topic"), "InvalidSink"), (ValueError("no column"), "InvalidPipeline")],
)
def test_what_the_check_of_a_sink_finds_is_a_reason(tmp_path: Path, error: Exception, reason: str) -> None:
    variables = environment(tmp_path)
    config = worker_config("http://x", ConsoleSink(rows=1))
    Path(variables[ENV_CONFIG]).write_bytes(msgspec.json.encode(config))
    worker = WorkerRuntime(read_settings(variables), SystemClock())

    def check() -> None:
        raise error

    with pytest.raises(FatalError, match=str(error)) as raised:
        worker._check_sink(check)
    assert raised.value.reason == reason


def membership_of_three_shards() -> Membership:
    membership = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    request = membership.poll(100)
    assert isinstance(request, SendHeartbeat)
    membership.answered(request.number, (1, 2, 3), now=100)
    for shard in (1, 2):
        epoch = next(s.epoch for s in membership.shards if s.shard == shard)
        membership.opened(shard, epoch=epoch, position=10 * shard, saved=10)
    return membership


SEVEN_ROWS = QueryProgress(rows=7, batch_hung_after_s=630)


def status_at_103_s(
    membership: Membership, error: ReportedError | None = None, query: QueryProgress = SEVEN_ROWS
) -> WorkerStatus:
    return status_of(
        member_of(membership),
        name="w-0",
        now=Moment(monotonic_s=103, unix_s=1000.0),
        error=error or ReportedError(),
        query=query,
        readings=ShardReadings(oldest_unix_s={1: 940.0, 2: None}, beyond_end={3: 4}, continued={2: 15}),
    )


def test_status_has_the_progress_of_each_shard() -> None:
    status = status_at_103_s(membership_of_three_shards())
    assert (status.phase, status.rows_written, status.last_heartbeat_age_s) == ("running", 7, 3)
    assert [(s.shard, s.cursor, s.checkpoint, s.lag_s) for s in status.shards] == [
        (1, encode(10), encode(10), 60.0),
        (2, encode(20), encode(10), 0.0),
        (3, None, None, None),
    ]
    assert [(s.beyond_end, s.sink_cursor) for s in status.shards] == [(0, None), (0, encode(15)), (4, None)]


def test_the_jvm_is_ended_even_if_a_thread_ends_meanwhile(tmp_path: Path) -> None:
    """The first entry is a folder: like the file of a thread that has ended, it cannot be read."""
    (tmp_path / "1" / "children").mkdir(parents=True)
    (tmp_path / "2").mkdir()
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            (tmp_path / "2" / "children").write_text(f"{child.pid} ")
            end_children(tmp_path)
            assert child.wait(60) == -signal.SIGTERM
        finally:
            child.kill()


def test_a_message_that_json_cannot_represent_is_replaced_in_part() -> None:
    status = status_at_103_s(
        membership_of_three_shards(), error=ReportedError("PipelineFailed", "KeyError: '\ud83d'")
    )
    assert msgspec.json.decode(msgspec.json.encode(status), type=WorkerStatus).message == "KeyError: '?'"


def test_phase_follows_the_membership() -> None:
    joining = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    assert status_at_103_s(joining).phase == "starting"
    fenced = membership_of_three_shards()
    fenced.poll(126)
    assert status_at_103_s(fenced).phase == "fenced"
    draining = membership_of_three_shards()
    draining.set_shutdown_mode(ShutdownMode.STOP)
    assert status_at_103_s(draining).phase == "draining"


def test_metrics_and_probes() -> None:
    status = status_at_103_s(membership_of_three_shards())
    registry = CollectorRegistry()
    counters = (
        Counter("loghub_worker_batches", "Batches.", 5),
        Counter("loghub_worker_log_groups_skipped", "Skipped.", {3: 2, 1: 1}),
    )
    registry.register(Figures(lambda: status, lambda: counters))
    text = answer("/metrics", registry, status, now_unix_s=1000)[2].decode()
    assert 'loghub_worker_shard_lag_seconds{shard="1"} 60.0' in text
    assert 'loghub_worker_shard_beyond_end_log_groups{shard="1"} 0.0' in text
    assert 'loghub_worker_shard_beyond_end_log_groups{shard="3"} 4.0' in text
    assert "loghub_worker_rows_written_total 7.0" in text
    assert "loghub_worker_batches_total 5.0" in text
    assert 'loghub_worker_log_groups_skipped_total{shard="3"} 2.0' in text
    assert "loghub_worker_batch_age_seconds 0.0" in text
    assert "loghub_worker_fenced 0.0" in text
    assert answer("/healthz", registry, status, now_unix_s=1001)[0] == 200
    assert answer("/healthz", registry, status, now_unix_s=1100)[0] == 503
    # The clock was set back, and nothing was written since.
    assert answer("/healthz", registry, status, now_unix_s=900)[0] == 503
    assert answer("/status", registry, status, now_unix_s=900)[0] == 503
    assert answer("/readyz", registry, status, now_unix_s=1001)[0] == 200
    failed = msgspec.structs.replace(status, phase="failed")
    assert answer("/healthz", registry, failed, now_unix_s=1001)[0] == 503
    assert answer("/elsewhere", registry, status, now_unix_s=1001)[0] == 404


def test_a_failing_shard_is_in_the_status_and_the_metrics() -> None:
    """Only where it waits at one log group: other ranges are being divided. What another worker holds now is
    not reported here."""
    policy = FailingShards(
        FailureSettings(
            policy=Policy.SKIP, max_attempts=1, max_consecutive=1, max_per_hour=9, batch_timeout_s=600
        )
    )
    failure = Failure(cause=Cause.REJECTED, reason="PipelineFailed", message="[BAD_CAST] the value 'abc'")
    for begin in (9, 10):
        policy.failed((Range(1, begin, begin + 1),), failure, now=100)
        if policy.to_settle((Range(1, begin, begin + 1),)):
            policy.settled(1, now=100)
    failures = FailureReport(
        failing=policy.failing,
        skips=policy.skips.recent_skips(100),
        totals=policy.totals,
    )
    status = status_at_103_s(
        membership_of_three_shards(),
        error=failures.error,
        query=QueryProgress(batch_age_s=2.5, batch_hung_after_s=630, failures=failures),
    )
    place = {"shard": 1, "cursor": encode(10), "state": "limited", "attempts": 1}
    assert status.failing == [FailingShard(**place, reason="PipelineFailed", error="BAD_CAST")]
    assert status.skipped == [
        SkippedLogGroups(shard=1, log_groups=1, last_cursor=encode(9), dead_lettered=False)
    ]
    assert status.reason == "PipelineFailed"
    assert (
        status.message
        == f"shard 1 at cursor {encode(10)}, limited after 1 attempts: [BAD_CAST] the value 'abc'"
    )
    registry = CollectorRegistry()
    registry.register(Figures(lambda: status, tuple))
    text = answer("/metrics", registry, status, now_unix_s=1000)[2].decode()
    assert 'loghub_worker_shard_failing{shard="1"} 1.0' in text
    assert "loghub_worker_batch_age_seconds 2.5" in text


def test_a_worker_that_should_have_ended_itself_is_not_healthy() -> None:
    """It cancels a batch after its timeout, and ends if that takes too long as well. If even that fails, the
    kubelet must end it."""

    def health(age_s: float) -> int:
        query = QueryProgress(batch_age_s=age_s, batch_hung_after_s=630)
        status = status_at_103_s(membership_of_three_shards(), query=query)
        return answer("/healthz", CollectorRegistry(), status, now_unix_s=1000)[0]

    assert [health(599), health(629), health(631), health(661)] == [200, 200, 200, 503]


@pytest.mark.parametrize("reason", ["PipelineFailed", "SinkUnavailable"])
def test_the_status_is_served_with_no_message_but_one_about_the_target(reason: str) -> None:
    """Everything in the pod network can read it, and an error of a pipeline may quote a log."""
    status = status_at_103_s(membership_of_three_shards(), error=ReportedError(reason, "of a log: 'secret'"))
    code, kind, body = answer("/status", CollectorRegistry(), status, now_unix_s=1001)
    assert (code, kind) == (200, "application/json")
    served = msgspec.json.decode(body, type=WorkerStatus)
    expected = status.message if reason == "SinkUnavailable" else ""
    assert served == msgspec.structs.replace(status, message=expected)
    assert [one.shard for one in served.shards] == [one.shard for one in status.shards] != []


def test_an_old_status_is_not_served() -> None:
    """Its reader must not compare the clocks of two nodes, so the worker itself judges the age."""
    status = status_at_103_s(membership_of_three_shards())
    assert answer("/status", CollectorRegistry(), status, now_unix_s=1000 + STATUS_FRESH_S)[0] == 200
    code, kind, body = answer("/status", CollectorRegistry(), status, now_unix_s=1000 + STATUS_FRESH_S + 1)
    assert (code, kind) == (503, "text/plain")
    assert b"6 s" in body


@pytest.mark.long
def test_the_status_over_the_servers_own_socket() -> None:
    status = status_at_103_s(membership_of_three_shards())
    figures = Figures(lambda: status, tuple)
    server = MetricsServer("127.0.0.1:0", figures, lambda: status, lambda: 1000.0)
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/status") as response:
            assert msgspec.json.decode(response.read(), type=WorkerStatus) == status
    finally:
        server.stop()
