"""A call whose inner task is cancelled, as Kopf does when it ends, is repeated."""

import asyncio
import http.server
import threading
from collections.abc import Iterator

import pytest
from kubernetes.aio.client import Configuration

from loghub_operator.clients import kube as kube_module
from loghub_operator.clients.kube import POD
from tests.loghub_operator.support.retrying_kube import Insistent

GUARD_S = 120.0


class Echo(http.server.BaseHTTPRequestHandler):
    """Takes any patch, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configuration]:
    """Of a server in a thread of its own; a lost body is waited for one second."""
    monkeypatch.setattr(kube_module, "CALL_TIMEOUT_S", 1.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        result = Configuration()
        result.host = f"http://127.0.0.1:{listening.server_address[1]}"
        result.client_session_kwargs = {"trust_env": False}
        yield result
        listening.shutdown()


async def patched(kube: Insistent) -> object:
    return await kube.patch(POD, "here", "access-0", {"spec": {"a": "b"}})


@pytest.mark.long
@pytest.mark.parametrize("connected", [False, True], ids=["before the connection", "before the body"])
def test_a_call_whose_inner_task_was_cancelled_is_repeated(
    configuration: Configuration, connected: bool
) -> None:
    async def story() -> None:
        async with Insistent(configuration) as kube:
            if connected:
                await patched(kube)
            call = asyncio.create_task(patched(kube))
            older = asyncio.all_tasks()
            while not (begun := asyncio.all_tasks() - older):
                await asyncio.sleep(0)
            for task in begun:
                task.cancel()
            assert await call == {"spec": {"a": "b"}}

    asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_a_cancelled_call_is_not_repeated(configuration: Configuration) -> None:
    async def story() -> None:
        async with Insistent(configuration) as kube:
            call = asyncio.create_task(patched(kube))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(asyncio.wait_for(story(), GUARD_S))
