"""``loghub project``, ``logstore`` and ``shard``: create, list, show and delete what a log service has; split
and merge shards.
"""

from collections.abc import Sequence

import click

from loghub.client.port import LogHub, LogstoreInfo, ProjectInfo, ShardInfo
from loghub.domain.shards import infer_parents
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import Code, LogHubError
from loghub_cli.commands import CommandGroup
from loghub_cli.connection import ServiceConnection, create_or_keep, if_not_exists
from loghub_cli.kafka_groups import kafka_groups
from loghub_cli.options import (
    HASH_KEY,
    LOGSTORE,
    PROJECT,
    SHARD,
    Show,
    confirm,
    confirmed,
    connected,
    connected_without_project,
    formatted,
)
from loghub_cli.output import Record, utc
from loghub_cli.read import as_shard

MAX_PARTS = 256  # a logstore of the embedded service begins with at most as many shards


@click.group(cls=CommandGroup)
def shard() -> None:
    """List, show, split, merge and delete the shards of a logstore."""


@shard.command("list")
@click.argument("logstore", type=LOGSTORE)
@connected
@formatted
def list_shards(logstore: str, place: ServiceConnection, show: Show) -> None:
    """List the shards of a logstore."""
    with place.open() as client:
        show(shard_records(client.list_shards(logstore)))


@shard.command("show")
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@connected
@formatted
def show_shard(logstore: str, shard: int, place: ServiceConnection, show: Show) -> None:
    """Show a shard with the cursors of its begin and end, and how many log groups are between them."""
    with place.open() as client:
        record = _found(client, logstore, shard)
        begin, end = (client.get_cursor(logstore, shard, where) for where in ("begin", "end"))
        groups = wire_cursor.decode(end) - wire_cursor.decode(begin)
        show({**record, "beginCursor": begin, "endCursor": end, "logGroups": groups})


@shard.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@click.option("--into", type=click.IntRange(2, MAX_PARTS), help="Number of equal parts; default: 2.")
@click.option(
    "--at", "key", type=HASH_KEY, help="Key at which the second of two parts begins: 32 hex digits."
)
@connected
@formatted
def split(
    logstore: str, shard: int, into: int | None, key: str | None, place: ServiceConnection, show: Show
) -> None:
    """Split a shard. It becomes read-only, and new shards take its place."""
    if into not in (None, 2) and key is not None:
        raise click.UsageError("--at splits a shard into 2; leave out --into")
    with place.open() as client:
        parts = into or 2
        show([shard_record(one) for one in client.split_shard(logstore, shard, key=key, parts=parts)])


@shard.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@connected
@formatted
def merge(logstore: str, shard: int, place: ServiceConnection, show: Show) -> None:
    """Merge a shard with its right neighbor. Both become read-only, and a new shard takes their place."""
    with place.open() as client:
        show([shard_record(one) for one in client.merge_shards(logstore, shard)])


@shard.command("delete")
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@confirmed
@connected
@formatted
def delete_shard(logstore: str, shard: int, yes: bool, place: ServiceConnection, show: Show) -> None:
    """Delete a read-only shard with its logs."""
    with place.open() as client:
        confirm(lambda: f"Delete shard {shard} of logstore {logstore} with its logs?", yes=yes)
        client.delete_shard(logstore, shard)
    show({"logstore": logstore, "shard": shard, "deleted": True})


def _found(client: LogHub, logstore: str, shard: int) -> Record:
    for record in shard_records(client.list_shards(logstore)):
        if record["shard"] == shard:
            return record
    raise LogHubError.of(Code.SHARD_NOT_EXIST, f"logstore {logstore} has no shard {shard}")


def shard_records(infos: Sequence[ShardInfo]) -> list[Record]:
    """All shards of a logstore with their parents, which follow from their keys: SLS reports none."""
    parents = infer_parents(as_shard(info) for info in infos)
    return [{**shard_record(info), "parents": list(parents[info.shard])} for info in infos]


def shard_record(info: ShardInfo) -> Record:
    return {
        "shard": info.shard,
        "status": "readonly" if info.read_only else "readwrite",
        "beginKey": info.begin_key,
        "endKey": info.end_key,
        "created": utc(info.created_unix_s or None),
    }


@click.group(cls=CommandGroup)
def logstore() -> None:
    """Create, list, show and delete logstores."""


@logstore.command("create")
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
def create_logstore(
    logstore: str, shards: int, ttl_days: int, keep: bool, place: ServiceConnection, show: Show
) -> None:
    """Create a logstore."""
    wanted = {"logstore": logstore, "shardCount": shards, "ttlDays": ttl_days}
    with place.open() as client:
        show(
            create_or_keep(
                wanted,
                lambda: client.create_logstore(logstore, shards=shards, ttl_days=ttl_days),
                lambda: _logstore_record(client.get_logstore(logstore)),
                exists=Code.LOG_STORE_ALREADY_EXIST if keep else None,
            )
        )


@logstore.command("list")
@click.option(
    "--details", is_flag=True, help="With the number of shards, TTL and times: a request for each logstore."
)
@connected
@formatted
def list_logstores(details: bool, place: ServiceConnection, show: Show) -> None:
    """List the logstores of a project."""
    with place.open() as client:
        names = client.list_logstores()
        show([_record_of(client, name) if details else {"logstore": name} for name in names])


def _record_of(client: LogHub, name: str) -> Record:
    """With dashes if it was deleted meanwhile, or the key may not see it: that hides no other one."""
    try:
        return _logstore_record(client.get_logstore(name))
    except LogHubError as error:
        if error.code not in (Code.LOG_STORE_NOT_EXIST, Code.UNAUTHORIZED):
            raise
        return {"logstore": name, "shardCount": None, "ttlDays": None, "created": None, "modified": None}


@logstore.command("show")
@click.argument("logstore", type=LOGSTORE)
@connected
@formatted
def show_logstore(logstore: str, place: ServiceConnection, show: Show) -> None:
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


@logstore.command("delete")
@click.argument("logstore", type=LOGSTORE)
@confirmed
@connected
@formatted
def delete_logstore(logstore: str, yes: bool, place: ServiceConnection, show: Show) -> None:
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
        {"group": group.name, "timeoutSeconds": group.timeout_s, "inOrder": group.order}
        for group in client.list_groups(logstore)
    ]


def _logstore_record(info: LogstoreInfo) -> Record:
    return {"logstore": info.name, "shardCount": info.shards, **_times(info)}


def _times(info: LogstoreInfo) -> Record:
    return {
        "ttlDays": info.ttl_days,
        "created": utc(info.created_unix_s),
        "modified": utc(info.modified_unix_s),
    }


@click.group(cls=CommandGroup)
def project() -> None:
    """Create, list, show and delete projects."""


@project.command("create")
@click.argument("name", type=PROJECT)
@click.option("--description", default="", help="Description of the project.")
@if_not_exists
@connected_without_project
@formatted
def create_project(name: str, description: str, keep: bool, place: ServiceConnection, show: Show) -> None:
    """Create a project."""
    with place.open(name) as client:
        show(
            create_or_keep(
                {"project": name, "description": description},
                lambda: client.create_project(description),
                lambda: _project_record(client.get_project()),
                exists=Code.PROJECT_ALREADY_EXIST if keep else None,
            )
        )


@project.command("list")
@connected_without_project
@formatted
def list_projects(place: ServiceConnection, show: Show) -> None:
    """List the projects that the access key sees."""
    with place.open_without_project() as client:
        show([_project_record(one) for one in client.list_projects()])


@project.command("show")
@click.argument("name", type=PROJECT)
@connected_without_project
@formatted
def show_project(name: str, place: ServiceConnection, show: Show) -> None:
    """Show a project and its logstores."""
    with place.open(name) as client:
        logstores = [{"logstore": one} for one in client.list_logstores()]
        show({**_project_record(client.get_project()), "logstores": logstores})


@project.command("delete")
@click.argument("name", type=PROJECT)
@confirmed
@connected_without_project
@formatted
def delete_project(name: str, yes: bool, place: ServiceConnection, show: Show) -> None:
    """Delete a project with its logstores, their logs and their consumer groups."""
    with place.open(name) as client:
        confirm(
            lambda: f"Delete project {name} with all its logs (logstores: {len(client.list_logstores())})?",
            yes=yes,
        )
        client.delete_project()
    show({"project": name, "deleted": True})


def _project_record(info: ProjectInfo) -> Record:
    return {
        "project": info.name,
        "description": info.description,
        "region": info.region,
        "created": utc(info.created_unix_s),
        "modified": utc(info.modified_unix_s),
    }
