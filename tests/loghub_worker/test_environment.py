"""Environment in, status and metrics out."""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from loghub.clock import SystemClock
from loghub.wire.cursor import encode
from loghub.worker_contract import (
    ENV_CONFIG,
    ENV_TERMINATION_LOG,
    SPARK_MASTER,
    SPARK_MEMORY,
    SPARK_OWN,
    STATUS_FRESH_S,
    ParquetSink,
    WorkerStatus,
)
from loghub_worker import __main__ as program
from loghub_worker.log_service import ServiceError
from loghub_worker.membership.state import Beat, Membership, MembershipTimings, ShutdownMode
from loghub_worker.metrics import Figures, MetricsServer, answer
from loghub_worker.query.spark_session import FatalError, end_jvm, spark_settings, start_spark
from loghub_worker.settings import BadSettingsError, is_drain_requested, read_settings
from loghub_worker.sink.sinks import InvalidSinkError, make_sink
from loghub_worker.status import status_of
from loghub_worker.worker import Worker
from tests.loghub_worker.support import worker_config


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


def test_settings_are_read_with_what_is_optional_left_out(tmp_path: Path) -> None:
    settings = read_settings(environment(tmp_path))
    assert settings.config == worker_config("http://x", ParquetSink(path="/sink"))
    assert (settings.drain_file, settings.metrics_address, settings.termination_log) == (None, None, None)


@pytest.mark.parametrize("name", [ENV_CONFIG, "LOGHUB_CONSUMER", "LOGHUB_STATE_DIR"])
def test_missing_variable_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSettingsError, match=name):
        read_settings({key: value for key, value in environment(tmp_path).items() if key != name})


def test_unknown_field_of_the_config_is_named(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    Path(variables[ENV_CONFIG]).write_text('{"endpoint": "x", "surprise": 1}')
    with pytest.raises(BadSettingsError, match="surprise"):
        read_settings(variables)


def test_settings_of_another_release_are_told_where_the_operator_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an image of the user's that has an older worker: its log alone would not reach the status."""
    variables = environment(tmp_path) | {ENV_TERMINATION_LOG: str(tmp_path / "words")}
    Path(variables[ENV_CONFIG]).write_text('{"endpoint": "x", "surprise": 1}')
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        assert program.main() == program.MISUSED
    finally:
        structlog.reset_defaults()
    words = (tmp_path / "words").read_text()
    assert words.startswith(ENV_CONFIG)
    assert "surprise" in words


@pytest.mark.parametrize(
    ("text", "requested"),
    [("true", True), ("true\n", True), ("false", False), ("", False), ("TRUE", False), ("leave", False)],
)
def test_drain_file(tmp_path: Path, text: str, requested: bool) -> None:
    (tmp_path / "drain").write_text(text)
    assert is_drain_requested(tmp_path / "drain") is requested
    assert is_drain_requested(tmp_path / "absent") is False


def test_users_spark_settings_win_and_java_options_are_joined(tmp_path: Path) -> None:
    conf = {"spark.sql.session.timeZone": "Asia/Shanghai", "spark.driver.extraJavaOptions": "-Dx=1"}
    settings = spark_settings(worker_config("http://x", ParquetSink(path="/s"), spark_conf=conf), tmp_path)
    assert settings["spark.sql.session.timeZone"] == "Asia/Shanghai"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dx=1")
    assert "-XX:+UseSerialGC" in settings["spark.driver.extraJavaOptions"]
    assert "SharedArchiveFile" not in settings["spark.driver.extraJavaOptions"]


def test_the_memory_has_a_field(tmp_path: Path) -> None:
    def memory(field: str | None) -> str:
        config = worker_config("http://x", ParquetSink(path="/s"), spark_memory=field)
        return spark_settings(config, tmp_path)["spark.driver.memory"]

    assert (memory(None), memory("1g")) == ("512m", "1g")


@pytest.mark.parametrize(
    "name", [SPARK_MASTER, SPARK_MEMORY, *SPARK_OWN, "spark.ui.enabled", "spark.ui.port"]
)
def test_what_the_worker_stands_on_is_not_the_users_to_set(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def settings(conf: dict[str, str]) -> dict[str, str]:
        return spark_settings(worker_config("http://x", ParquetSink(path="/s"), spark_conf=conf), tmp_path)

    assert settings({name: "theirs"}) == settings({})
    assert name in capsys.readouterr().out


def test_each_java_option_is_quoted_since_a_folder_may_have_a_space(tmp_path: Path) -> None:
    config = worker_config("http://x", ParquetSink(path="/s"), spark_conf={})
    settings = spark_settings(config, tmp_path / "a b", class_archive=tmp_path / "c d")
    options = shlex.split(settings["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={tmp_path}/a b/tmp" in options
    assert f"-XX:SharedArchiveFile={tmp_path}/c d" in options


def test_missing_java_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(FatalError, match="install openjdk-17") as raised:
        start_spark(worker_config("http://x", ParquetSink(path="/s")), tmp_path)
    assert raised.value.reason == "JavaMissing"
    assert "\n" not in str(raised.value)


def test_stop_that_was_lost_while_spark_started_ends_the_worker_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = environment(tmp_path)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    Path(variables[ENV_CONFIG]).write_bytes(msgspec.json.encode(worker_config("http://x", sink)))
    made = Worker(read_settings(variables), SystemClock())

    def start(*_: object, **__: object) -> None:
        with contextlib.suppress(BaseException):  # as a hook at a fork does
            made.request_stop()

    monkeypatch.setattr("loghub_worker.worker.start_spark", start)
    monkeypatch.setattr("loghub_worker.worker.make_transform", lambda *_: pytest.fail("it went on"))
    made.run()
    assert made.status().phase == "starting"


def test_asking_for_a_stop_takes_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler runs within whatever the main thread does, so it would wait for that thread, and
    that thread for it."""
    made = Worker(read_settings(environment(tmp_path)), SystemClock())

    def held(*_: object, **__: object) -> None:
        raise AssertionError("the interrupted thread may hold this")

    with monkeypatch.context() as interrupted:
        for taken in (threading.Event, threading.Condition):
            for name in ("set", "wait", "notify_all", "__enter__"):
                if hasattr(taken, name):
                    interrupted.setattr(taken, name, held)
        made.request_stop()
    made.run()
    assert made.status().phase == "starting", "it was heard: nothing was begun"


@pytest.mark.parametrize("path", ["s3://bucket/x", "oss://bucket/x", "hdfs://host/x", "relative/path"])
def test_sink_that_is_no_folder_is_refused(path: str) -> None:
    config = worker_config("http://x", ParquetSink(path=path))
    with pytest.raises(InvalidSinkError, match=r"absolute path|mounted file system"):
        make_sink(config, consumer="w-0", credentials_dir="/k", scratch=Path("/x"), now_unix_s=0)


def test_folder_without_hard_links_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have none; on one that is read-only or full the same fails, a step before."""

    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    variables = environment(tmp_path)
    sink = ParquetSink(path=str(tmp_path / "sink"))
    Path(variables[ENV_CONFIG]).write_bytes(msgspec.json.encode(worker_config("http://x", sink)))
    worker = Worker(read_settings(variables), SystemClock())
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr("loghub_worker.worker.start_spark", lambda *_, **__: pytest.fail("it went on"))
    with pytest.raises(FatalError, match="Operation not supported") as raised:
        worker.run()
    assert raised.value.reason == "SinkUnavailable"
    assert [path.name for path in (tmp_path / "sink").rglob("*") if path.is_file()] == []


def consumer() -> Membership:
    made = Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))
    beat = made.poll(100)
    assert isinstance(beat, Beat)
    made.answered(beat.number, (1, 2, 3), now=100)
    for shard in (1, 2):
        take = next(s.epoch for s in made.shards if s.shard == shard)
        made.opened(shard, epoch=take, position=10 * shard, saved=10)
    return made


def status(made: Membership, **changes: Any) -> WorkerStatus:
    values: dict[str, Any] = {"now": 103, "unix_s": 1000.0, "trouble": ServiceError(), "rows": 7}
    return status_of(made, name="w-0", oldest_unix_s={1: 940.0, 2: None}, **(values | changes))


def test_status_tells_each_shard() -> None:
    told = status(consumer())
    assert (told.phase, told.rows_written, told.last_heartbeat_age_s) == ("running", 7, 3)
    assert [(s.shard, s.cursor, s.checkpoint, s.lag_s) for s in told.shards] == [
        (1, encode(10), encode(10), 60.0),
        (2, encode(20), encode(10), 0.0),
        (3, None, None, None),
    ]


def test_the_jvm_is_ended_although_a_thread_ends_meanwhile(tmp_path: Path) -> None:
    """A folder, since it cannot be read either."""
    (tmp_path / "1" / "children").mkdir(parents=True)
    (tmp_path / "2").mkdir()
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            (tmp_path / "2" / "children").write_text(f"{child.pid} ")
            end_jvm(tmp_path)
            assert child.wait(60) == -signal.SIGTERM
        finally:
            child.kill()


def test_words_that_no_json_takes_leave_a_status_all_the_same() -> None:
    told = status(consumer(), trouble=ServiceError("PipelineFailed", "KeyError: '\ud83d'"))
    assert msgspec.json.decode(msgspec.json.encode(told), type=WorkerStatus).message == "KeyError: '?'"


def test_phase_follows_the_membership() -> None:
    assert status(Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))).phase == "starting"
    fenced = consumer()
    fenced.poll(126)
    assert status(fenced).phase == "fenced"
    draining = consumer()
    draining.set_goal(ShutdownMode.STOP)
    assert status(draining).phase == "draining"


def test_metrics_and_probes() -> None:
    told = status(consumer(), unix_s=1000.0)
    registry = CollectorRegistry()
    registry.register(Figures(lambda: told, lambda: {"loghub_worker_batches": ("Batches.", 5)}))
    text = answer("/metrics", registry, told, now_unix_s=1000)[2].decode()
    assert 'loghub_worker_shard_lag_seconds{shard="1"} 60.0' in text
    assert "loghub_worker_rows_written_total 7.0" in text
    assert "loghub_worker_batches_total 5.0" in text
    assert "loghub_worker_fenced 0.0" in text
    assert answer("/healthz", registry, told, now_unix_s=1001)[0] == 200
    assert answer("/healthz", registry, told, now_unix_s=1100)[0] == 503
    assert answer("/readyz", registry, told, now_unix_s=1001)[0] == 200
    failed = msgspec.structs.replace(told, phase="failed")
    assert answer("/healthz", registry, failed, now_unix_s=1001)[0] == 503
    assert answer("/elsewhere", registry, told, now_unix_s=1001)[0] == 404


def test_the_status_is_served_without_the_message() -> None:
    """Everything in the pod network can read it, and an error of a pipeline may quote a log."""
    quotes = ServiceError("PipelineFailed", "ValueError: invalid literal: 'secret of a log'")
    told = status(consumer(), unix_s=1000.0, trouble=quotes)
    assert told.message
    code, kind, body = answer("/status", CollectorRegistry(), told, now_unix_s=1001)
    assert (code, kind) == (200, "application/json")
    served = msgspec.json.decode(body, type=WorkerStatus)
    assert served == msgspec.structs.replace(told, message="")
    assert [one.shard for one in served.shards] == [one.shard for one in told.shards] != []


def test_an_old_status_is_not_served() -> None:
    """Its reader must not compare the clocks of two nodes, so the worker itself judges the age."""
    told = status(consumer(), unix_s=1000.0)
    assert answer("/status", CollectorRegistry(), told, now_unix_s=1000 + STATUS_FRESH_S)[0] == 200
    code, kind, body = answer("/status", CollectorRegistry(), told, now_unix_s=1000 + STATUS_FRESH_S + 1)
    assert (code, kind) == (503, "text/plain")
    assert b"6 s" in body


def test_the_status_over_the_servers_own_socket() -> None:
    told = status(consumer(), unix_s=1000.0)
    figures = Figures(lambda: told, dict)
    server = MetricsServer("127.0.0.1:0", figures, lambda: told, lambda: 1000.0)
    server.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/status") as response:
            assert msgspec.json.decode(response.read(), type=WorkerStatus) == told
    finally:
        server.stop()
