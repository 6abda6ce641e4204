"""Creates the project and the logstores that a consumer group needs, for `loghub up --create-logstore` and
the demo."""

from collections.abc import Callable
from functools import partial

from loghub.client.port import LogHub
from loghub.wire.error_codes import Code
from loghub.wire.errors import LogHubError
from loghub_operator.api import LogHubConsumerGroup

_ALREADY_EXISTS = (Code.PROJECT_ALREADY_EXIST, Code.LOG_STORE_ALREADY_EXIST)


def create_sources(client: LogHub, resource: LogHubConsumerGroup, *, shards: int) -> tuple[str, ...]:
    """Returns a description of each created object; existing objects stay unchanged. Raises
    `LogHubException`."""
    created = []
    if not client.project_exists() and _create_if_missing(
        lambda: client.create_project("created by loghub up")
    ):
        created.append(f"project {client.project}")
    created += [
        f"logstore {logstore} with {shards} shards"
        for logstore in _logstores(client, resource)
        if not client.logstore_exists(logstore)
        and _create_if_missing(partial(client.create_logstore, logstore, shards=shards))
    ]
    return tuple(created)


def _logstores(client: LogHub, resource: LogHubConsumerGroup) -> tuple[str, ...]:
    spec, sink = resource.spec, resource.spec.pipeline.logstore_sink
    ours = sink is not None and (sink.project or spec.project) == client.project
    target = sink.name if sink is not None and ours else None
    named = (spec.logstore, target, spec.pipeline.retry_logstore, spec.dead_letter_logstore)
    return tuple(name for name in named if name is not None)


def _create_if_missing(create: Callable[[], None]) -> bool:
    try:
        create()
    except LogHubError as error:
        if error.code in _ALREADY_EXISTS:  # another client was faster
            return False
        raise
    return True
