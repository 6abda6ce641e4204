"""``loghub group``: create, list, show, change and delete consumer groups, and show and move their
checkpoints.

Groups of Kafka clients are listed and shown; Kafka's own tools change and delete them. A forced checkpoint is
saved whether or not a consumer holds the shard. A consumer that runs keeps its own position and saves it
again, so a reset of a group whose consumers run is refused; for a group of the operator there is
``spec.resetCheckpoints``, which stops the workers first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from loghub.client.port import CheckpointInfo, GroupInfo, LogHub, Position
from loghub.clock import SystemClock
from loghub.domain.lag import Lag
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_cli.commands import Command, CommandGroup
from loghub_cli.connection import ServiceConnection, create_or_keep, if_not_exists
from loghub_cli.kafka_groups import (
    SLS,
    group_lag,
    kafka_group,
    kafka_group_instead,
    kafka_groups,
    lag_record,
    listed,
    may_be_of_sls,
    shown,
)
from loghub_cli.options import (
    ANY_GROUP,
    CURSOR,
    GROUP,
    LOGSTORE,
    POSITION,
    SHARD,
    SUBSCRIPTION,
    Show,
    confirm,
    confirmed,
    connected,
    formatted,
    of_kafka,
)
from loghub_cli.output import Failed, Record, utc

_despite_consumers = click.option(
    "--live", is_flag=True, help="Do it although consumers run, which take their checkpoints back."
)


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@connected
@formatted
def checkpoints(logstore: str, group: str, place: ServiceConnection, show: Show) -> None:
    """Show the checkpoints of a consumer group."""
    with place.open() as client:
        show(_records(client, logstore, group))


@click.command("set-checkpoint", cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.argument("shard", type=SHARD)
@click.argument("cursor", type=CURSOR)
@click.option("--consumer", default="", help="Name of the consumer that holds the shard.")
@click.option("--force", is_flag=True, help="Save it whether or not a consumer holds the shard.")
@_despite_consumers
@connected
@formatted
def set_checkpoint(
    logstore: str,
    group: str,
    shard: int,
    cursor: str,
    place: ServiceConnection,
    show: Show,
    **holder: str | bool,
) -> None:
    """Set the checkpoint of one shard to a cursor, and show which it replaces."""
    consumer, force = str(holder["consumer"]), bool(holder["force"])
    if not consumer and not force:
        raise click.UsageError("name the holder of the shard with --consumer, or set it with --force")
    with place.open() as client:
        if force and not holder["live"]:
            _reject_live(client, logstore, group)
        move = ShardMove(shard=shard, before=_saved(client, logstore, group).get(shard, ""), cursor=cursor)
        client.update_checkpoint(logstore, group, shard=shard, cursor=cursor, consumer=consumer, force=force)
        show([move.record])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMove:
    """A new place of one shard; what it replaces is nowhere else afterwards."""

    shard: int
    before: str
    cursor: str

    @property
    def record(self) -> Record:
        return {"shard": self.shard, "from": self.before or None, "to": self.cursor}

    def __str__(self) -> str:
        return f"{self.shard} (from {self.before or 'no checkpoint'} to {self.cursor})"


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.option("--to", "position", type=POSITION,
              help="begin, end, or the time from which logs were received.")  # fmt: skip
@click.option("--from-subscription", "source", type=SUBSCRIPTION, metavar="SUBSCRIPTION",
              help="The marks of this subscription.")  # fmt: skip
@click.option("--shard", "shards", type=SHARD, multiple=True, help="Only this shard; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show from where to where it would move, and change nothing.")
@_despite_consumers
@confirmed
@connected
@formatted
def reset(logstore: str, group: str, place: ServiceConnection, show: Show, **values: Any) -> None:
    """Set the checkpoints of all shards to a position, and show which they replace: with `set-checkpoint`
    these bring the group back. Stop the consumers first: one that runs goes on where it is, and saves its own
    checkpoint again.

    A checkpoint is one place, so logs that a subscription has acknowledged above its mark come again; their
    number is shown."""
    position: Position | None = values["position"]
    source: str | None = values["source"]
    if (position is None) == (source is None):
        raise click.UsageError("give --to or --from-subscription")
    chosen: tuple[int, ...] = values["shards"]
    with place.open() as client:
        existing = [one.shard for one in client.list_shards(logstore)]
        if missing := sorted(set(chosen) - set(existing)):
            raise click.UsageError(f"logstore {logstore} has no shard {missing[0]}")
        # The group exists, before anybody is asked.
        before = _saved(client, logstore, group)
        shards = list(chosen) or existing
        if source is not None:
            marks = _marks_of(client, logstore, source, shards, live=values["live"] or values["dry_run"])
            words = f"the marks of subscription {source}"
        else:
            assert position is not None
            marks = {shard: client.get_cursor(logstore, shard, position) for shard in shards}
            words = position_words(position)
        moves = [ShardMove(shard=one, before=before.get(one, ""), cursor=marks[one]) for one in marks]
        if values["dry_run"]:
            show([one.record for one in moves])
            return
        if not values["live"]:
            _reject_live(client, logstore, group)
        question = f"Set the checkpoints of {len(moves)} shards of consumer group {group} to {words}?"
        confirm(lambda: question, yes=values["yes"])
        _carry_out(client, logstore, group, moves)
        show([one.record for one in moves])


def _marks_of(
    client: LogHub, logstore: str, subscription: str, shards: Sequence[int], *, live: bool
) -> dict[int, str]:
    """Says how many logs come again. Refuses a subscription whose consumers would go on unless ``live``."""
    status = client.subscription_status(logstore, subscription)
    if status.consumers and not live:
        names = [one.name for one in status.consumers]
        raise Failed(
            f"loghub: {len(names)} consumers of subscription {subscription} are connected ({some(names)}):"
            " what they acknowledge from now on comes again in the group, so stop them first; --live does it"
            " anyway"
        )
    of_shards = [one for one in status.shards if one.shard in shards]
    again = [one.acked_logs for one in of_shards]
    number = "an unknown number of" if None in again else str(sum(one or 0 for one in again))
    click.echo(
        f"loghub: {number} logs that subscription {subscription} has acknowledged above its marks come again",
        err=True,
    )
    return {one.shard: one.mark for one in of_shards}


def _carry_out(client: LogHub, logstore: str, group: str, moves: list[ShardMove]) -> None:
    for number, move in enumerate(moves):
        try:
            client.update_checkpoint(
                logstore, group, shard=move.shard, cursor=move.cursor, consumer="", force=True
            )
        except LogHubException as error:
            done = ", ".join(str(one) for one in moves[:number]) or "none"
            raise Failed(
                f"loghub: {error}; shard {move.shard} and those after it are not reset; reset are: {done}"
            ) from None


def _reject_live(client: LogHub, logstore: str, group: str) -> None:
    """A consumer that runs would take the checkpoint back. The real SLS does not say which run, but of each
    checkpoint who saved it and when."""
    remedy = (
        "a consumer that runs goes on where it is and saves its own checkpoint again, so stop them first, and"
        " wait for the group's timeout; for a group of the operator there is spec.resetCheckpoints;"
        " --live does it anyway"
    )
    if client.has_extensions():
        running = [one.name for one in client.group_status(logstore, group).consumers]
        if running:
            raise Failed(f"loghub: {len(running)} consumers of group {group} run ({some(running)}): {remedy}")
        return
    timeout_s = next((one.timeout_s for one in client.list_groups(logstore) if one.name == group), 0)
    now_us = SystemClock().unix_s() * 1e6
    saved = client.get_checkpoints(logstore, group)
    recent = [
        checkpoint.consumer
        for checkpoint in saved
        if checkpoint.consumer and now_us - checkpoint.updated_unix_us < timeout_s * 1e6
    ]
    if recent:
        raise Failed(
            f"loghub: consumers of group {group} have saved checkpoints within its timeout ({some(recent)}):"
            f" {remedy}"
        )
    click.echo(
        "loghub: this log service does not say which consumers run; one that does takes its checkpoint"
        " back, as `loghub group checkpoints` shows a while later",
        err=True,
    )


def some(names: list[str]) -> str:
    """The first names, for a message."""
    shown = sorted(set(names))
    return ", ".join(shown[:3]) + (" and others" if len(shown) > 3 else "")


def position_words(position: Position) -> str:
    """A position in a question."""
    return f"the {position}" if isinstance(position, str) else str(utc(position))


def _saved(client: LogHub, logstore: str, group: str) -> dict[int, str]:
    return {one.shard: one.cursor for one in client.get_checkpoints(logstore, group)}


def _records(client: LogHub, logstore: str, group: str) -> list[Record]:
    saved = sorted(client.get_checkpoints(logstore, group), key=lambda one: one.shard)
    return [_checkpoint_record(one) for one in saved]


def _checkpoint_record(info: CheckpointInfo) -> Record:
    return {
        "shard": info.shard,
        "checkpoint": info.cursor or None,
        "consumer": info.consumer or None,
        "updated": utc(info.updated_unix_us / 1e6) if info.updated_unix_us else None,
    }


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
    logstore: str,
    group: str,
    timeout: int,
    in_order: bool,
    place: ServiceConnection,
    show: Show,
    *,
    keep: bool,
) -> None:
    """Create a consumer group."""
    info = GroupInfo(name=group, timeout_s=timeout, order=in_order)
    with place.open() as client:
        show(
            create_or_keep(
                _group_record(info),
                lambda: client.create_group(logstore, info),
                lambda: _group_record(_found(client, logstore, group)),
                exists=Code.CONSUMER_GROUP_ALREADY_EXIST if keep else None,
            )
        )


@group.command("list")
@click.argument("logstore", type=LOGSTORE)
@of_kafka
@connected
@formatted
def list_(logstore: str, kafka: bool, place: ServiceConnection, show: Show) -> None:
    """List the consumer groups of a logstore, and, at the embedded service, the groups of Kafka clients."""
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
def show_(logstore: str, group: str, kafka: bool, place: ServiceConnection, show: Show) -> None:
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
                "shard": lag.shard,
                "consumer": lag.consumer or None,
                "checkpoint": lag.checkpoint or None,
                **lag_record(lag.lag),
            }
            for lag in lags
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
    logstore: str,
    group: str,
    timeout: int | None,
    in_order: bool | None,
    place: ServiceConnection,
    show: Show,
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
        show(_group_record(new))


@group.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@confirmed
@connected
@formatted
def delete(logstore: str, group: str, yes: bool, place: ServiceConnection, show: Show) -> None:
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


def _group_record(info: GroupInfo) -> Record:
    return {"group": info.name, "timeoutSeconds": info.timeout_s, "inOrder": info.order}


def _listed(info: GroupInfo) -> Record:
    return {"group": info.name, "kind": SLS, **_group_record(info)}


def _status(client: LogHub, logstore: str, group: str) -> Record:
    status = client.group_status(logstore, group)
    consumers = [
        {
            "consumer": consumer.name,
            "heartbeatAgeSeconds": round(consumer.last_heartbeat_age_s, 1),
            "shards": list(consumer.owned),
        }
        for consumer in status.consumers
    ]
    shards = [
        {
            "shard": shard.shard,
            "state": shard.state,
            "consumer": shard.holder or None,
            "nextConsumer": shard.next_holder or None,
            "checkpoint": shard.checkpoint or None,
            **lag_record(Lag(groups=shard.lag_groups, logs=shard.lag_logs, seconds=shard.lag_s)),
        }
        for shard in status.shards
    ]
    return {"consumers": consumers, "shards": shards}
