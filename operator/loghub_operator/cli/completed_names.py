"""The names that a shell completes: one request with a short time limit, and nothing if it fails.

A Tab must neither wait nor print: without a reachable service there is just nothing to complete.
"""

from collections.abc import Callable, Sequence

import click

from loghub.client.port import LogHub
from loghub.client.transport import Timeouts
from loghub.wire.errors import LogHubException
from loghub_operator.cli.connection import Connection, Options, connection
from loghub_operator.cli.kafka_groups import kafka_groups

_TIMEOUTS = Timeouts(connect_s=1.0, read_s=2.0, total_s=2.0)


def projects(ctx: click.Context) -> Sequence[str]:
    def names(place: Connection) -> list[str]:
        with place.open_without_project(timeouts=_TIMEOUTS) as client:
            return [project.name for project in client.list_projects()]

    return _or_nothing(ctx, names)


def logstores(ctx: click.Context) -> Sequence[str]:
    return _in_project(ctx, lambda client: client.list_logstores())


def groups(ctx: click.Context) -> Sequence[str]:
    logstore = ctx.params.get("logstore")
    if not logstore:
        return ()
    return _in_project(ctx, lambda client: [group.name for group in client.list_groups(logstore)])


def every_group(ctx: click.Context) -> Sequence[str]:
    """Of Kafka clients, too."""
    logstore = ctx.params.get("logstore")
    if not logstore:
        return ()

    def names(client: LogHub) -> list[str]:
        of_sls = [] if ctx.params.get("kafka") else [one.name for one in client.list_groups(logstore)]
        return of_sls + [one.name for one in kafka_groups(client, logstore)]

    return _in_project(ctx, names)


def _in_project(ctx: click.Context, names: Callable[[LogHub], Sequence[str]]) -> Sequence[str]:
    def asked(place: Connection) -> Sequence[str]:
        with place.open(timeouts=_TIMEOUTS) as client:
            return names(client)

    return _or_nothing(ctx, asked)


def _or_nothing(ctx: click.Context, names: Callable[[Connection], Sequence[str]]) -> Sequence[str]:
    try:
        return names(connection(Options.of(ctx.params)))
    except (LogHubException, click.ClickException, ValueError, OSError):
        return ()
