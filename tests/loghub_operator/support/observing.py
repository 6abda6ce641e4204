"""One observation of the log service by `observe_service`, with the workers' reports, without pods or
processes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loghub.clock import Clock
from loghub.domain.state_inference import WorkerReport
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice.group_state import Unresolved, observe_service
from loghub_operator.logservice.shard_cursors import CursorCache, RunAll
from loghub_operator.model.observed import LogServiceObserved

NO_REPORTS: Mapping[str, WorkerReport | None] = {}


def one_by_one(task: Callable[[], None], _: int) -> None:
    """A `RunAll` without threads."""
    task()


def service_observed(
    client: Any,
    resource: LogHubConsumerGroup,
    *,
    clock: Clock,
    cache: CursorCache | None = None,
    run_all: RunAll = one_by_one,
    silent: Iterable[str] = (),
    reports: Mapping[str, WorkerReport | None] = NO_REPORTS,
) -> LogServiceObserved:
    """``silent`` are expected consumers without a report."""
    result = observe_service(
        client, resource, cache=cache or CursorCache(clock), run_all=run_all, clock=clock
    )
    if isinstance(result, Unresolved):
        return result.resolved({**dict.fromkeys(silent), **reports})
    return result
