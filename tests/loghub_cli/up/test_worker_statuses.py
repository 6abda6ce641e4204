"""The local back end observes what its workers report in their status files."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import GroupInfo, LogHub
from loghub.clock import SystemClock
from loghub.contract.worker import STATUS_FRESH_S, FailingShard, WorkerStatus
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.model.observed import ShardFailures, WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_cli.up.test_reconcile_loop import Ways, backend_of
from tests.loghub_operator.logservice.test_group_state import WithoutExtensions
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.status_server import shard, worker_status


class Reporting(Ways):
    """Workers with these statuses, which their supervisor has read from their files."""

    def __init__(self, *statuses: WorkerStatus) -> None:
        super().__init__()
        self.statuses = statuses
        self.read = 0

    def views(self) -> tuple[WorkerView, ...]:
        self.read += 1
        return tuple(self.view(ordinal, status) for ordinal, status in enumerate(self.statuses))

    def view(self, ordinal: int, status: WorkerStatus) -> WorkerView:
        worker = WorkerObserved(
            name=f"access-{ordinal}",
            ordinal=ordinal,
            phase=WorkerPhase.RUNNING,
            ready=True,
            revision=UNKNOWN,
            drain_requested=False,
        )
        return WorkerView(observed=worker, pid=1, starts=1, status=status)


@pytest.mark.parametrize(
    ("extensions", "age_s", "states"),
    [
        (False, 0.0, ["already_alloc", "transfer", "not_alloc"]),
        (False, STATUS_FRESH_S + 60.0, ["unknown", "unknown", "unknown"]),
        (True, 0.0, ["not_alloc", "not_alloc", "not_alloc"]),
    ],
)
def test_without_extensions_a_handover_follows_from_the_workers_status_files(
    tmp_path: Path, age_s: float, states: list[str], *, extensions: bool
) -> None:
    group, server = resource(), MemoryServer()
    log_service = server.client("demo")
    log_service.create_project()
    log_service.create_logstore("access", shards=3)
    log_service.create_group("access", GroupInfo(name="access", timeout_s=30, order=False))
    written_at = SystemClock().unix_s() - age_s
    ways = Reporting(worker_status(shard(0), shard(1, draining=True), written_at=written_at))
    wrapped: Callable[[LogHub], Any] = (lambda log_service: log_service) if extensions else WithoutExtensions
    observed = asyncio.run(backend_of(ways, server, [], tmp_path, wrapped=wrapped).observe(group))
    assert [one.state for one in available(observed.service).shards] == states
    assert ways.read == 1
    assert observed.failures == ShardFailures()


def test_what_a_worker_cannot_deliver_is_in_the_status(tmp_path: Path) -> None:
    failing = FailingShard(shard=1, cursor="MTA=", state="stopped", reason="PipelineFailed", attempts=5)
    ways = Reporting(worker_status(failing=[failing]))
    observed = asyncio.run(backend_of(ways, MemoryServer(), [], tmp_path).observe(resource()))
    assert observed.failures == ShardFailures(failing=(failing,))
