"""A real worker whose database is away when it starts, and goes away while it delivers: it waits both times,
and nothing is lost."""

import signal
from pathlib import Path

import pytest

from loghub.worker_contract import ENV_SINK_CREDENTIALS_DIR
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.loghub_worker.support import (
    GUARD_S,
    Producer,
    all_saved,
    prepare,
    worker_config,
    worker_processes,
)
from tests.postgresql_server import PASSWORDS, USER, running_postgresql, write_credentials
from tests.support import running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def test_a_worker_waits_for_its_database_and_delivers_each_line_once(tmp_path: Path) -> None:
    credentials = write_credentials(tmp_path / "sink-credentials")
    variables = {ENV_SINK_CREDENTIALS_DIR: str(credentials)}
    with (
        running_postgresql() as server,
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service, variables) as workers,
    ):
        client = prepare(service, shards=2)
        producer = Producer(client)
        sink = sink_settings(server.port, create_table=True)

        def reported() -> bool:
            status = worker.status
            return bool(worker.phase) and status is not None and status.reason == "SinkUnavailable"

        server.stop(signal.SIGQUIT)
        worker = workers.start("w-0", worker_config(service.endpoint, sink, max_log_groups=5))
        wait_until(reported, "the status to say so at the start", guard_s=GUARD_S)
        assert worker.phase == "starting"
        server.start()
        producer.put(groups=20)
        wait_until(lambda: worker.phase == "running" and all_saved(client), "the first rows", guard_s=GUARD_S)
        server.stop(signal.SIGQUIT)
        producer.put(groups=40)
        wait_until(reported, "the status to say so", guard_s=GUARD_S)
        assert worker.status is not None
        assert f"127.0.0.1:{server.port}/logs: connection" in worker.status.message
        # It holds its shards meanwhile.
        assert worker.phase == "running"
        assert worker.shards == {0, 1}
        server.start()
        producer.put(groups=20)
        wait_until(lambda: bool(worker.phase) and all_saved(client), "the rest", guard_s=GUARD_S)
        lines = server.rows("SELECT id FROM lines ORDER BY id")
        assert worker.end(signal.SIGTERM) == 0, worker.log_tail()
        settings = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("config.json"))
        assert PASSWORDS[USER] not in settings + worker.log_tail()
    assert lines == sorted((one,) for one in producer.sent.elements())
