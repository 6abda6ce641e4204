"""The examples with a processor, run by `loghub up` as their first lines say."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.support import ROOT, STOP_GUARD_S, ServiceProcess, running_service, wait_until

EXAMPLES = ROOT / "deploy" / "examples"
LINE = '192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET /a HTTP/1.1" {status} 2326'
FIRST_MINUTE = 1_700_000_040
Served = TypeVar("Served", bound=ThreadingHTTPServer)


@contextmanager
def up(folder: Path, service: ServiceProcess, example: Path, *options: str) -> Iterator[Path]:
    """`loghub up` with an example; the path of what it shows. It is ended as with Ctrl-C."""
    command = [sys.executable, "-m", "loghub_cli", "up", "-f", str(example), "--plain"]
    command += [*options, "--state-dir", str(folder / "state"), "--endpoint", service.endpoint]
    key = service.credentials
    keys = {"LOGHUB_ACCESS_KEY_ID": key.access_key_id, "LOGHUB_ACCESS_KEY_SECRET": key.access_key_secret}
    shown = folder / "output"
    with shown.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | keys, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield shown
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_GUARD_S) == 0
    finally:
        process.kill()
        process.wait(STOP_GUARD_S)
        print(shown.read_text())


@contextmanager
def access(folder: Path, *groups: list[str]) -> Iterator[tuple[ServiceProcess, HttpLogHub]]:
    """A service with the logstore of the examples, which has one shard, and in it log groups of these lines,
    a minute apart."""
    with running_service(folder / "service") as service:
        client = HttpLogHub(service.endpoint, "demo", credentials=service.credentials)
        client.create_project("tests")
        client.create_logstore("access", shards=1)
        for minute, lines in enumerate(groups):
            time = FIRST_MINUTE + 60 * minute
            logs = tuple(Log(time=time, contents=(("line", line),)) for line in lines)
            client.put_logs("access", encode(LogGroup(logs=logs)))
        yield service, client
        client.close()


def is_saved(client: HttpLogHub, group: str) -> bool:
    (checkpoint,) = client.get_checkpoints("access", group)
    return checkpoint.cursor == client.get_cursor("access", 0, "end")


@pytest.mark.long
def test_the_example_runs_with_loghub_up_and_counts(tmp_path: Path) -> None:
    minutes = [[LINE.format(status=one) for one in some] for some in ((200, 200, 404), (500,), (200,))]
    with access(tmp_path, *minutes) as (service, client):
        with up(tmp_path, service, EXAMPLES / "processor.yaml") as shown:
            log = tmp_path / "state/groups/count-by-status/workers/count-by-status-0/log"
            wait_until(lambda: log.exists() and "'500': 1" in log.read_text(), "the counts of two minutes")
            wait_until(lambda: "shards 0, 5 rows" in shown.read_text(), "the logs in the live view")
        counts = [line.split(": ", 1)[1] for line in log.read_text().splitlines() if " shard 0: {" in line]
        assert counts == ["{'200': 2, '404': 1}", "{'500': 1}", "{'200': 1}"], "the last one at the shutdown"
        assert is_saved(client, "count-by-status")


class Endpoint(ThreadingHTTPServer):
    """Answers with the status that a log names, and ``503-2`` after two such answers with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[str] = []

    def take(self) -> None:
        """Before each answer."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Endpoint)
        line = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["line"]
        self.server.got.append(line)
        self.server.take()
        status, _, times = line.partition("-")
        self.send_response(200 if times and self.server.got.count(line) > int(times) else int(status))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def running_endpoint(endpoint: Served) -> Iterator[Served]:
    thread = threading.Thread(target=endpoint.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        thread.join(STOP_GUARD_S)
        endpoint.server_close()


@pytest.mark.long
def test_the_example_with_a_retry_logstore_delivers_what_the_endpoint_takes(tmp_path: Path) -> None:
    example = tmp_path / "retry-logstore.yaml"
    text = (EXAMPLES / "retry-logstore.yaml").read_text()
    with (
        running_endpoint(Endpoint()) as endpoint,
        access(tmp_path, ["200", "503-2", "201", "400", "503-6"]) as (
            service,
            client,
        ),
    ):
        for before, after in (
            ("http://127.0.0.1:9000", f"http://127.0.0.1:{endpoint.server_port}"),
            ("delayMilliseconds: 1000", "delayMilliseconds: 50"),
            ("[10, 60, 600]", "[1, 2]"),
        ):
            assert before in text
            text = text.replace(before, after)
        example.write_text(text)
        with up(tmp_path, service, example, "--create-logstore", "--shards", "1") as shown:
            wait_until(lambda: endpoint.got.count("503-6") == 7, "the last delivery")
            wait_until(lambda: "shards 0, 5 rows" in shown.read_text(), "the logs in the live view")
        assert [endpoint.got.count(line) for line in ("200", "503-2", "201", "400")] == [1, 3, 1, 1]
        begin = client.get_cursor("access-rejected", 0, "begin")
        (raw,) = loggroup.split(client.pull_logs("access-rejected", 0, cursor=begin, count=9).body)
        assert [log.contents for log in loggroup.decode(raw).logs] == [(("line", b"400"),)]
        assert b"status 400" in bytes(raw)
        assert is_saved(client, "deliver")


class Gate(Endpoint):
    """Answers nothing before as many requests wait as there are workers, and the test lets them pass."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.first = threading.Barrier(workers + 1, timeout=STOP_GUARD_S)
        self.is_open = threading.Event()

    def take(self) -> None:
        if not self.is_open.is_set():
            self.first.wait()

    def open(self) -> None:
        self.is_open.set()
        self.first.wait()


@pytest.mark.long
def test_workers_of_a_shared_subscription_take_logs_of_one_shard_and_those_of_one_that_is_killed(
    tmp_path: Path,
) -> None:
    workers, lines = 3, [str(status) for status in range(200, 240)]  # each is answered as it says
    example = tmp_path / "shared-subscription.yaml"
    text = (EXAMPLES / "shared-subscription.yaml").read_text()
    with (
        running_endpoint(Gate(workers)) as endpoint,
        access(tmp_path, lines[:20], lines[20:]) as (service, client),
    ):
        for before, after in (
            ("http://target.example/logs", f"http://127.0.0.1:{endpoint.server_port}"),
            ("  replicas: 6", f"  replicas: {workers}\n  heartbeatIntervalSeconds: 1\n  timeoutSeconds: 4"),
            ("maxUnacknowledged: 1000", "maxUnacknowledged: 2"),
        ):
            assert before in text
            text = text.replace(before, after)
        example.write_text(text)
        with up(tmp_path, service, example) as shown:
            wait_until(lambda: endpoint.first.n_waiting == workers, "a request of each worker")
            status = client.subscription_status("access", "call-endpoint")
            assert len({consumer.name for consumer in status.consumers}) == workers
            os.kill(_pid_of("call-endpoint-0", shown), signal.SIGKILL)
            endpoint.open()
            wait_until(lambda: set(endpoint.got) == set(lines), "a request for each log")
            wait_until(
                lambda: client.subscription_status("access", "call-endpoint").backlog_logs == 0,
                "the last acknowledgment",
            )
        assert len(endpoint.got) > len(lines), "the log that the killed worker had comes again"
        # One that was about to join as it was stopped has a session until its lease is over.
        wait_until(
            lambda: client.subscription_status("access", "call-endpoint").consumers == (), "no consumer"
        )


def _pid_of(worker: str, shown: Path) -> int:
    return int(shown.read_text().split(f"{worker} started, process ")[1].split()[0])
