"""Connections of a consumer to its endpoint."""

from loghub.client.http import HttpLogHub
from loghub.client.port import LogHub
from loghub.client.transport import Timeouts
from loghub_worker.consumer.settings import ConsumerSettings


def connect(
    settings: ConsumerSettings, *, project: str | None = None, timeout_s: float | None = None
) -> LogHub:
    """A connection to a project, by default that of the settings. The caller closes it."""
    timeouts = Timeouts()
    if timeout_s is not None:
        timeouts = Timeouts(connect_s=min(timeout_s, timeouts.connect_s), read_s=timeout_s, total_s=timeout_s)
    return HttpLogHub(
        settings.endpoint,
        project or settings.project,
        credentials=settings.credentials,
        agent=f"{settings.consumer_group}/{settings.consumer}",
        timeouts=timeouts,
    )
