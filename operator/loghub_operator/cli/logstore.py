"""``loghub logstore``: create, list, show and delete logstores."""

import click

from loghub.client.port import LogHub, LogstoreInfo
from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.kafka_groups import kafka_groups
from loghub_operator.cli.options import LOGSTORE, Show, confirm, confirmed, connected, formatted
from loghub_operator.cli.output import Record, utc
from loghub_operator.cli.shard import shard_record


@click.group()
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
@connected
@formatted
def create(logstore: str, shards: int, ttl_days: int, place: Connection, show: Show) -> None:
    """Create a logstore."""
    with place.open() as client:
        client.create_logstore(logstore, shards=shards, ttl_days=ttl_days)
    show({"logstore": logstore, "shardCount": shards, "ttlDays": ttl_days})


@logstore.command("list")
@connected
@formatted
def list_(place: Connection, show: Show) -> None:
    """List the logstores of a project."""
    with place.open() as client:
        show([_record_of(client, name) for name in client.list_logstores()])


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
        shards = [shard_record(one) for one in client.list_shards(logstore)]
        show({**_record(info), "shards": shards, "consumerGroups": _groups(client, logstore)})


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
    return {
        "logstore": info.name,
        "shardCount": info.shards,
        "ttlDays": info.ttl_days,
        "created": utc(info.created_unix_s),
        "modified": utc(info.modified_unix_s),
    }
