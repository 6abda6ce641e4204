"""The real Python SDK on a loopback service: through the service's forward-proxy mode.

The SDK puts the project before the endpoint's host name and cannot address IP:port. So it gets a name that no
DNS serves, and the service itself as an HTTP proxy (docs/sls-protocol.md 1.1).
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aliyun.log import LogClient, LogItem, PutLogsRequest
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, LogHubConfig

from loghub.client.port import Credentials
from tests.support import ROOT, ServiceProcess

ENDPOINT = "http://sls.invalid"
PROJECT, LOGSTORE, GROUP = "demo", "access", "readers"


def through_proxy(patch: pytest.MonkeyPatch, service: ServiceProcess) -> None:
    """`requests` reads these at each call."""
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        patch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        patch.setenv(name, service.endpoint)


def client_of(service: ServiceProcess, key: Credentials | None = None) -> LogClient:
    key = key or service.credentials
    return LogClient(ENDPOINT, key.access_key_id, key.access_key_secret)


def put(client: LogClient, lines: list[str], *, hash_key: str | None = None) -> None:
    items = [LogItem(timestamp=1_700_000_000, contents=[("line", line)]) for line in lines]
    client.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "topic", "source", items, hashKey=hash_key))


def real_lines(count: int) -> list[str]:
    """Lines of real logs if there are any, else generated ones; each with its number in front."""
    folder = Path(os.environ.get("LOGHUB_TEST_LOGS", ROOT / "../shared/data/logs"))
    lines: list[str] = []
    for file in sorted(folder.glob("*.log")):
        with file.open(encoding="utf-8", errors="replace") as text:
            lines += [line.rstrip("\r\n") for _, line in zip(range(count), text, strict=False)]
    lines = lines or [f"GET /item/{n % 97} HTTP/1.1 200 {n * 31}" for n in range(count)]
    return [f"{n} {line}" for n, line in enumerate(lines[:: max(1, len(lines) // count)][:count])]


class Sink:
    """Collects what all consumers of a test have read, from all their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.read_lines: list[tuple[str, int, str]] = []  # consumer, shard, line

    def add(self, consumer: str, shard: int, lines: list[str]) -> None:
        with self._lock:
            self.read_lines += [(consumer, shard, line) for line in lines]

    def lines(self) -> list[str]:
        with self._lock:
            return [line for _, _, line in self.read_lines]


class Processor(ConsumerProcessorBase):  # type: ignore[misc]
    """Takes the batch into the sink, then saves the checkpoint: at least once."""

    def __init__(self, sink: Sink, consumer: str) -> None:
        super().__init__()
        self._sink = sink
        self._consumer = consumer

    def process(self, log_groups, check_point_tracker) -> None:  # type: ignore[no-untyped-def]
        lines = [
            content.Value for group in log_groups.LogGroups for log in group.Logs for content in log.Contents
        ]
        self._sink.add(self._consumer, self.shard_id, lines)
        self.save_checkpoint(check_point_tracker, force=True)


@contextmanager
def consuming(
    service: ServiceProcess,
    consumer: str,
    sink: Sink,
    *,
    heartbeat_interval: float = 0.2,
    key: Credentials | None = None,
) -> Iterator[ConsumerWorker]:
    """The SDK's own consumer library, running; always shut down and waited for."""
    key = key or service.credentials
    config = LogHubConfig(
        ENDPOINT,
        key.access_key_id,
        key.access_key_secret,
        PROJECT,
        LOGSTORE,
        GROUP,
        consumer,
        heartbeat_interval=heartbeat_interval,
        data_fetch_interval=0.05,
        worker_pool_size=4,
    )
    # Twice the interval, the SDK's own choice, is short where other work keeps the machine busy.
    config.consumer_group_time_out = max(6, round(3 * heartbeat_interval))
    worker = ConsumerWorker(Processor, config, args=(sink, consumer))
    worker.start()
    try:
        yield worker
    finally:
        worker.shutdown()
        worker.join(60)
        assert not worker.is_alive()
