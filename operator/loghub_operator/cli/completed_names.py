"""The names that a shell completes: one request with a short time limit, and nothing if it fails.

A Tab must neither wait nor print: without a reachable service there is just nothing to complete.
"""

from collections.abc import Callable, Sequence

import click

from loghub.client.transport import Timeouts
from loghub.wire.errors import LogHubException
from loghub_operator.cli.connection import Connection, Options, connection
from loghub_operator.cli.kafka_groups import kafka_groups

_TIMEOUTS = Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0)


def projects(ctx: click.Context) -> Sequence[str]:
    return _or_nothing(lambda: projects_of(_place(ctx)))


def logstores(ctx: click.Context) -> Sequence[str]:
    return _or_nothing(lambda: logstores_of(_place(ctx)))


def groups(ctx: click.Context) -> Sequence[str]:
    """Without those of Kafka clients."""
    logstore = ctx.params.get("logstore")
    return _or_nothing(lambda: _groups_of_sls(_place(ctx), logstore)) if logstore else ()


def every_group(ctx: click.Context) -> Sequence[str]:
    """Of Kafka clients, too."""
    logstore, kafka = ctx.params.get("logstore"), bool(ctx.params.get("kafka"))
    return _or_nothing(lambda: groups_of(_place(ctx), logstore, kafka=kafka)) if logstore else ()


def _place(ctx: click.Context) -> Connection:
    return connection(Options.of(ctx.params))


def _or_nothing(names: Callable[[], Sequence[str]]) -> Sequence[str]:
    try:
        return names()
    except (LogHubException, click.ClickException, ValueError, OSError):
        return ()


def projects_of(place: Connection) -> Sequence[str]:
    with place.open_without_project(timeouts=_TIMEOUTS) as client:
        return [project.name for project in client.list_projects()]


def logstores_of(place: Connection) -> Sequence[str]:
    with place.open(timeouts=_TIMEOUTS) as client:
        return client.list_logstores()


def _groups_of_sls(place: Connection, logstore: str) -> Sequence[str]:
    with place.open(timeouts=_TIMEOUTS) as client:
        return [group.name for group in client.list_groups(logstore)]


def groups_of(place: Connection, logstore: str, *, kafka: bool) -> Sequence[str]:
    """Those of Kafka clients, and unless ``kafka`` is set the others."""
    of_sls = [] if kafka else _groups_of_sls(place, logstore)
    with place.open(timeouts=_TIMEOUTS) as client:
        return [*of_sls, *(one.name for one in kafka_groups(client, logstore))]
