"""The adapters that the contract suite runs against, by name."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from tests.fakes.fake_log_service import MemoryServer
from tests.support import running_service

# A client of a project at one service, which the clients of one `Opener` share.
Opener = Callable[[str], LogHub]

# A client of project demo at an endpoint; further parameters are the adapter's.
OpenClient = Callable[..., AbstractContextManager[LogHub]]

KEY = Credentials(access_key_id="keyId", access_key_secret="secret")
BODY = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))
OVER_HTTP = {"http": HttpLogHub, "aliyun": AliyunLogHub}
ADAPTERS = ("memory", "http", "aliyun")
_numbers = itertools.count(1)


@contextmanager
def opener(adapter: str, folder: Path) -> Iterator[Opener]:
    """Open clients by this adapter; for `http` and `aliyun` a real service process serves them."""
    opened: list[LogHub] = []

    def remember(client: LogHub) -> LogHub:
        opened.append(client)
        return client

    try:
        if adapter == "memory":
            server = MemoryServer(polls=True)
            yield lambda project: remember(server.client(project))
            return
        with running_service(folder) as service:
            yield lambda project: remember(
                OVER_HTTP[adapter](
                    service.endpoint, project, credentials=service.credentials, agent="group/consumer"
                )
            )
    finally:
        for client in opened:
            client.close()


def opener_of(adapter: str) -> OpenClient:
    """Open clients by this adapter, which goes over HTTP; each is closed at its end."""

    @contextmanager
    def opened(endpoint: str, **options: Any) -> Iterator[LogHub]:
        client = OVER_HTTP[adapter](endpoint, "demo", **{"credentials": KEY, **options})
        try:
            yield client
        finally:
            client.close()

    return opened


def fresh_project() -> str:
    """A project name that no test of this run has had."""
    return f"project-{next(_numbers)}"
