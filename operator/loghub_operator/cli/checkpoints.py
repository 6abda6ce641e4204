"""The commands of ``loghub group`` that show and move checkpoints.

A forced checkpoint is saved whether or not a consumer holds the shard. A consumer that runs keeps its own
position and saves it again, so a reset is for a group whose consumers are stopped; for a group of the
operator there is ``spec.resetCheckpoints``, which stops the workers first.
"""

import click

from loghub.client.port import CheckpointInfo, LogHub, Position
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.options import (
    CURSOR,
    GROUP,
    LOGSTORE,
    POSITION,
    SHARD,
    Show,
    confirm,
    confirmed,
    connected,
    formatted,
)
from loghub_operator.cli.output import Record, utc


@click.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@connected
@formatted
def checkpoints(logstore: str, group: str, place: Connection, show: Show) -> None:
    """Show the checkpoints of a consumer group."""
    with place.open() as client:
        show(_records(client, logstore, group))


@click.command("set-checkpoint")
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.argument("shard", type=SHARD)
@click.argument("cursor", type=CURSOR)
@click.option("--consumer", default="", help="Name of the consumer that holds the shard.")
@click.option("--force", is_flag=True, help="Save it whether or not a consumer holds the shard.")
@connected
@formatted
def set_checkpoint(
    logstore: str, group: str, shard: int, cursor: str, place: Connection, show: Show, **holder: str | bool
) -> None:
    """Set the checkpoint of one shard to a cursor."""
    consumer, force = str(holder["consumer"]), bool(holder["force"])
    if not consumer and not force:
        raise click.UsageError("name the holder of the shard with --consumer, or set it with --force")
    with place.open() as client:
        client.update_checkpoint(logstore, group, shard=shard, cursor=cursor, consumer=consumer, force=force)
        show([one for one in _records(client, logstore, group) if one["shard"] == shard])


@click.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@click.option("--to", "position", type=POSITION, required=True,
              help="begin, end, or the time from which logs were received.")  # fmt: skip
@click.option("--shard", "shards", type=SHARD, multiple=True, help="Only this shard; repeatable.")
@confirmed
@connected
@formatted
def reset(
    logstore: str, group: str, position: Position, place: Connection, show: Show, **values: object
) -> None:
    """Set the checkpoints of all shards to a position. Stop the consumers first: one that runs goes on where
    it is, and saves its own checkpoint again."""
    chosen = values["shards"]
    assert isinstance(chosen, tuple)
    with place.open() as client:
        known = [one.shard for one in client.list_shards(logstore)]
        if missing := sorted(set(chosen) - set(known)):
            raise click.UsageError(f"logstore {logstore} has no shard {missing[0]}")
        shards = list(chosen) or known
        client.get_checkpoints(logstore, group)  # the group exists, before anybody is asked
        confirm(
            lambda: (
                f"Set the checkpoints of {len(shards)} shards of consumer group {group} to"
                f" {_words(position)}?{_consumers(client, logstore, group)}"
            ),
            yes=bool(values["yes"]),
        )
        for shard in shards:
            cursor = client.get_cursor(logstore, shard, position)
            client.update_checkpoint(logstore, group, shard=shard, cursor=cursor, consumer="", force=True)
        show([one for one in _records(client, logstore, group) if one["shard"] in shards])


def _words(position: Position) -> str:
    return f"the {position}" if isinstance(position, str) else str(utc(position))


def _consumers(client: LogHub, logstore: str, group: str) -> str:
    """A warning if the service knows of consumers that run; the real SLS does not say."""
    if not client.has_extensions():
        return ""
    running = len(client.group_status(logstore, group).consumers)
    return f" {running} consumers are running." if running else ""


def _records(client: LogHub, logstore: str, group: str) -> list[Record]:
    saved = sorted(client.get_checkpoints(logstore, group), key=lambda one: one.shard)
    return [_record(one) for one in saved]


def _record(info: CheckpointInfo) -> Record:
    return {
        "shard": info.shard,
        "checkpoint": info.cursor or None,
        "consumer": info.consumer or None,
        "updated": utc(info.updated_unix_us / 1e6) if info.updated_unix_us else None,
    }
