"""``loghub logstore``: create, list, show and delete logstores."""

import click

from loghub.client.port import LogHub, LogstoreInfo
from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.commands import CommandGroup
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.creation import create_or_keep, if_not_exists
from loghub_operator.cli.kafka_groups import kafka_groups
from loghub_operator.cli.options import LOGSTORE, Show, confirm, confirmed, connected, formatted
from loghub_operator.cli.output import Record, utc
from loghub_operator.cli.shard import shard_records


@click.group(cls=CommandGroup)
def logstore() -> None:
    """Create, list, show and delete logstores."""


@logstore.command()
@click.argument("logstore", type=LOGSTORE)
@click.option("--shards", type=click.IntRange(1), default=2, show_default=True, help="Number of shards.")
@click.option(
    "--ttl-days",
    type=click.IntRange(1, 3650),
    default=7,
    show_default=True,
    help="Days for which logs are kept; 3650: forever.",
)
@if_not_exists
@connected
@formatted
def create(logstore: str, shards: int, ttl_days: int, keep: bool, place: Connection, show: Show) -> None:
    """Create a logstore."""
    wanted = {"logstore": logstore, "shardCount": shards, "ttlDays": ttl_days}
    with place.open() as client:
        show(
            create_or_keep(
                wanted,
                lambda: client.create_logstore(logstore, shards=shards, ttl_days=ttl_days),
                lambda: _record(client.get_logstore(logstore)),
                exists=Code.LOG_STORE_ALREADY_EXIST if keep else None,
            )
        )


@logstore.command("list")
@click.option(
    "--details", is_flag=True, help="With the number of shards, TTL and times: a request for each logstore."
)
@connected
@formatted
def list_(details: bool, place: Connection, show: Show) -> None:
    """List the logstores of a project."""
    with place.open() as client:
        names = client.list_logstores()
        show([_record_of(client, name) if details else {"logstore": name} for name in names])


def _record_of(client: LogHub, name: str) -> Record:
    """With dashes if it was deleted meanwhile, or the key may not see it: that hides no other one."""
    try:
        return _record(client.get_logstore(name))
    except LogHubError as error:
        if error.code not in (Code.LOG_STORE_NOT_EXIST, Code.UNAUTHORIZED):
            raise
        return {"logstore": name, "shardCount": None, "ttlDays": None, "created": None, "modified": None}


@logstore.command("show")
@click.argument("logstore", type=LOGSTORE)
@connected
@formatted
def show_(logstore: str, place: Connection, show: Show) -> None:
    """Show a logstore with its shards and consumer groups."""
    with place.open() as client:
        info = client.get_logstore(logstore)
        shards = client.list_shards(logstore)
        writable = sum(not one.read_only for one in shards)
        show(
            {
                "logstore": info.name,
                "writableShards": writable,
                "readOnlyShards": len(shards) - writable,
                **_times(info),
                "shards": shard_records(shards),
                "consumerGroups": _groups(client, logstore),
            }
        )


@logstore.command()
@click.argument("logstore", type=LOGSTORE)
@confirmed
@connected
@formatted
def delete(logstore: str, yes: bool, place: Connection, show: Show) -> None:
    """Delete a logstore with its logs and its consumer groups."""
    with place.open() as client:
        confirm(lambda: _question(client, logstore), yes=yes)
        client.delete_logstore(logstore)
    show({"logstore": logstore, "deleted": True})


def _question(client: LogHub, logstore: str) -> str:
    shards = client.list_shards(logstore)
    groups = [*client.list_groups(logstore), *kafka_groups(client, logstore)]
    counts = f"shards: {len(shards)}, consumer groups: {len(groups)}"
    return f"Delete logstore {logstore} of project {client.project} with all its logs ({counts})?"


def _groups(client: LogHub, logstore: str) -> list[Record]:
    return [
        {"group": one.name, "timeoutSeconds": one.timeout_s, "inOrder": one.order}
        for one in client.list_groups(logstore)
    ]


def _record(info: LogstoreInfo) -> Record:
    return {"logstore": info.name, "shardCount": info.shards, **_times(info)}


def _times(info: LogstoreInfo) -> Record:
    return {
        "ttlDays": info.ttl_days,
        "created": utc(info.created_unix_s),
        "modified": utc(info.modified_unix_s),
    }
