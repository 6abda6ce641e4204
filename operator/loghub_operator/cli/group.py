"""``loghub group``: create, list, show, change and delete consumer groups, and their checkpoints.

Groups of Kafka clients are listed and shown; Kafka's own tools change and delete them.
"""

import click

from loghub.client.port import GroupInfo, LogHub
from loghub.clock import SystemClock
from loghub.domain.lag import Lag
from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.checkpoints import checkpoints, reset, set_checkpoint
from loghub_operator.cli.commands import CommandGroup
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.creation import create_or_keep, if_not_exists
from loghub_operator.cli.group_lag import group_lag, lag_record
from loghub_operator.cli.kafka_groups import (
    SLS,
    kafka_group,
    kafka_group_instead,
    kafka_groups,
    listed,
    may_be_of_sls,
    shown,
)
from loghub_operator.cli.options import (
    ANY_GROUP,
    GROUP,
    LOGSTORE,
    Show,
    confirm,
    confirmed,
    connected,
    formatted,
    of_kafka,
)
from loghub_operator.cli.output import Record

_TIMEOUT = click.IntRange(1, 86400)


@click.group(cls=CommandGroup)
def group() -> None:
    """Create, list, show, change and delete consumer groups; show, set and reset their checkpoints."""


@group.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.option("--timeout", type=_TIMEOUT, default=60, show_default=True,
              help="Seconds without a heartbeat after which a consumer is removed.")  # fmt: skip
@click.option("--in-order", is_flag=True, help="Consume the shards of a split only after their parents.")
@if_not_exists
@connected
@formatted
def create(  # noqa: PLR0913 - each is an option
    logstore: str, group: str, timeout: int, in_order: bool, place: Connection, show: Show, *, keep: bool
) -> None:
    """Create a consumer group."""
    info = GroupInfo(name=group, timeout_s=timeout, order=in_order)
    with place.open() as client:
        show(
            create_or_keep(
                _record(info),
                lambda: client.create_group(logstore, info),
                lambda: _record(_found(client, logstore, group)),
                exists=Code.CONSUMER_GROUP_ALREADY_EXIST if keep else None,
            )
        )


@group.command("list")
@click.argument("logstore", type=LOGSTORE)
@of_kafka
@connected
@formatted
def list_(logstore: str, kafka: bool, place: Connection, show: Show) -> None:
    """List the consumer groups of a logstore, and at the embedded service those of Kafka clients."""
    with place.open() as client:
        if kafka:
            show([listed(one) for one in client.list_kafka_groups(logstore)])
            return
        rows = [{**_listed(info), "state": None, "members": None} for info in client.list_groups(logstore)]
        show([*rows, *(listed(one) for one in kafka_groups(client, logstore))])


@group.command("show")
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=ANY_GROUP)
@of_kafka
@connected
@formatted
def show_(logstore: str, group: str, kafka: bool, place: Connection, show: Show) -> None:
    """Show a consumer group, its shards, and, at the embedded service, its consumers and the states.

    A group of Kafka clients is shown if no other group has the name, or with --kafka.
    """
    with place.open() as client:
        if kafka:
            show(shown(kafka_group(client, logstore, group)))
            return
        info = _named(client, logstore, group) if may_be_of_sls(group) else None
        if info is None:
            show(shown(kafka_group_instead(client, logstore, group)))
            return
        record = _listed(info)
        if client.has_extensions():
            show({**record, **_status(client, logstore, group)})
            return
        lags = group_lag(client, logstore, group, now_unix_s=SystemClock().unix_s())
        shards = [
            {
                "shard": one.shard,
                "consumer": one.consumer or None,
                "checkpoint": one.checkpoint or None,
                **lag_record(one.lag),
            }
            for one in lags
        ]
        show({**record, "shards": shards})


@group.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.option("--timeout", type=_TIMEOUT, help="Seconds without a heartbeat.")
@click.option("--in-order/--no-in-order", default=None, help="Consume shards of a split after their parents.")
@connected
@formatted
def update(
    logstore: str, group: str, timeout: int | None, in_order: bool | None, place: Connection, show: Show
) -> None:
    """Change the timeout or the order of a consumer group."""
    if timeout is None and in_order is None:
        raise click.UsageError("give --timeout, --in-order or --no-in-order")
    with place.open() as client:
        old = _found(client, logstore, group)
        new = GroupInfo(
            name=group,
            timeout_s=old.timeout_s if timeout is None else timeout,
            order=old.order if in_order is None else in_order,
        )
        client.update_group(logstore, new)
        show(_record(new))


@group.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@confirmed
@connected
@formatted
def delete(logstore: str, group: str, yes: bool, place: Connection, show: Show) -> None:
    """Delete a consumer group with its checkpoints."""
    with place.open() as client:
        confirm(
            lambda: f"Delete consumer group {group} of logstore {logstore} with its checkpoints?", yes=yes
        )
        client.delete_group(logstore, group)
    show({"logstore": logstore, "group": group, "deleted": True})


for command in (checkpoints, set_checkpoint, reset):
    group.add_command(command)


def _named(client: LogHub, logstore: str, group: str) -> GroupInfo | None:
    return next((info for info in client.list_groups(logstore) if info.name == group), None)


def _found(client: LogHub, logstore: str, group: str) -> GroupInfo:
    info = _named(client, logstore, group)
    if info is None:
        raise LogHubError.of(
            Code.CONSUMER_GROUP_NOT_EXIST, f"logstore {logstore} has no consumer group {group}"
        )
    return info


def _record(info: GroupInfo) -> Record:
    return {"group": info.name, "timeoutSeconds": info.timeout_s, "inOrder": info.order}


def _listed(info: GroupInfo) -> Record:
    return {"group": info.name, "kind": SLS, **_record(info)}


def _status(client: LogHub, logstore: str, group: str) -> Record:
    status = client.group_status(logstore, group)
    consumers = [
        {
            "consumer": one.name,
            "heartbeatAgeSeconds": round(one.last_heartbeat_age_s, 1),
            "shards": list(one.owned),
        }
        for one in status.consumers
    ]
    shards = [
        {
            "shard": one.shard,
            "state": one.state,
            "consumer": one.holder or None,
            "nextConsumer": one.next_holder or None,
            "checkpoint": one.checkpoint or None,
            **lag_record(Lag(groups=one.lag_groups, logs=one.lag_logs, seconds=one.lag_s)),
        }
        for one in status.shards
    ]
    return {"consumers": consumers, "shards": shards}
