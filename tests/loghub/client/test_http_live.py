"""The adapters over HTTP against a real service process: wrong key, kill, many threads."""

import threading
from pathlib import Path

import pytest

from loghub.client.port import Credentials
from loghub.wire.errors import EndpointUnreachable, LogHubError
from tests.loghub.client.adapters import BODY, OpenClient
from tests.support import running_service


@pytest.mark.long
def test_a_wrong_key_is_reported_and_clients_survive_a_restart(
    open_client: OpenClient, tmp_path: Path
) -> None:
    with running_service(tmp_path) as service:
        wrong = Credentials(access_key_id="testKeyId", access_key_secret="guess")
        with open_client(service.endpoint, credentials=wrong) as client:
            with pytest.raises(LogHubError) as error:
                client.create_project()
            assert (error.value.code, error.value.status) == ("SignatureNotMatch", 401)
            assert error.value.request_id
        with open_client(service.endpoint, credentials=service.credentials) as client:
            client.create_project()
            client.create_logstore("access", shards=1)
            client.put_logs("access", BODY)
            service.kill9()
            with pytest.raises(EndpointUnreachable) as gone:
                client.put_logs("access", BODY)
            assert gone.value.definite
            service.start()
            begin = client.get_cursor("access", 0, "begin")
            assert client.pull_logs("access", 0, cursor=begin, count=10).count == 1


@pytest.mark.long
def test_many_threads_share_one_client(open_client: OpenClient, tmp_path: Path) -> None:
    threads, puts = 8, 20
    failures: list[BaseException] = []
    with (
        running_service(tmp_path) as service,
        open_client(service.endpoint, credentials=service.credentials) as client,
    ):
        client.create_project()
        client.create_logstore("access", shards=1)

        def write() -> None:
            try:
                for _ in range(puts):
                    client.put_logs("access", BODY)
            except BaseException as error:  # noqa: BLE001 - reported in the main thread
                failures.append(error)

        workers = [threading.Thread(target=write) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert failures == []
        begin = client.get_cursor("access", 0, "begin")
        assert client.pull_logs("access", 0, cursor=begin, count=1000).count == threads * puts
