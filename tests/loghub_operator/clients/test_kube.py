"""The Kubernetes port where nothing comes back."""

import asyncio
import socket

import pytest
from kubernetes.aio.client import Configuration

from loghub_operator.clients import kube as kube_module
from loghub_operator.clients.kube import POD, AioKube, KubeError


def test_an_apiserver_that_does_not_answer_in_time_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_module, "CALL_TIMEOUT_S", 0.2)

    async def ask(address: str) -> None:
        made = Configuration()
        made.host = f"http://{address}"
        made.client_session_kwargs = {"trust_env": False}
        async with AioKube(made) as kube:
            await kube.get(POD, "here", "access-0")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = r"^Unreachable: GET /api/v1/namespaces/here/pods/access-0: TimeoutError$"
        with pytest.raises(KubeError, match=words) as caught:
            asyncio.run(ask(f"127.0.0.1:{silent.getsockname()[1]}"))
    assert caught.value.status == 0
