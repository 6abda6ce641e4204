"""Creates the project and the logstores that a consumer group needs, for `loghub up --create-logstore` and
the demo."""

from collections.abc import Callable
from functools import partial

from loghub.client.port import LogHub
from loghub.wire.error_codes import Code
from loghub.wire.errors import LogHubError
from loghub_operator.api import LogHubConsumerGroup

_THERE = (Code.PROJECT_ALREADY_EXIST, Code.LOG_STORE_ALREADY_EXIST)


def create_sources(hub: LogHub, resource: LogHubConsumerGroup, *, shards: int) -> tuple[str, ...]:
    """Returns a description of each created object; existing objects stay unchanged. Raises
    `LogHubException`."""
    made = []
    if not hub.project_exists() and _made(lambda: hub.create_project("created by loghub up")):
        made.append(f"project {hub.project}")
    made += [
        f"logstore {logstore} with {shards} shards"
        for logstore in _logstores(hub, resource)
        if not hub.logstore_exists(logstore) and _made(partial(hub.create_logstore, logstore, shards=shards))
    ]
    return tuple(made)


def _logstores(hub: LogHub, resource: LogHubConsumerGroup) -> tuple[str, ...]:
    sink = resource.spec.pipeline.sink.logstore
    ours = sink is not None and (sink.project or resource.spec.project) == hub.project
    return (resource.spec.logstore, sink.name) if sink is not None and ours else (resource.spec.logstore,)


def _made(make: Callable[[], None]) -> bool:
    try:
        make()
    except LogHubError as error:
        if error.code in _THERE:  # another client was faster
            return False
        raise
    return True
