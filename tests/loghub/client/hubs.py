"""The adapters that the contract suite runs against, by name."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.memory import MemoryServer
from loghub.client.port import LogHub
from tests.support import running_service

# A client of a project at one service, which the clients of one `Opener` share.
Opener = Callable[[str], LogHub]

ADAPTERS = ("memory", "http", "aliyun")
_numbers = itertools.count(1)


@contextmanager
def opener(adapter: str, folder: Path) -> Iterator[Opener]:
    """Open clients by this adapter; for `http` and `aliyun` a real service process serves them."""
    opened: list[LogHub] = []

    def keep(hub: LogHub) -> LogHub:
        opened.append(hub)
        return hub

    try:
        if adapter == "memory":
            server = MemoryServer()
            yield lambda project: keep(server.client(project))
            return
        kind = HttpLogHub if adapter == "http" else AliyunLogHub
        with running_service(folder) as service:
            yield lambda project: keep(
                kind(service.endpoint, project, credentials=service.credentials, agent="group/consumer")
            )
    finally:
        for hub in opened:
            hub.close()


def fresh_project() -> str:
    """A project name that no test of this run has had."""
    return f"project-{next(_numbers)}"
