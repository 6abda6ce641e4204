"""``loghub shard``: list, show, split, merge and delete shards."""

from collections.abc import Sequence

import click

from loghub.client.port import LogHub, ShardInfo
from loghub.domain.shards import infer_parents
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.commands import CommandGroup
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.logstore_tail import as_shard
from loghub_operator.cli.options import (
    HASH_KEY,
    LOGSTORE,
    SHARD,
    Show,
    confirm,
    confirmed,
    connected,
    formatted,
)
from loghub_operator.cli.output import Record, utc

MAX_PARTS = 256


@click.group(cls=CommandGroup)
def shard() -> None:
    """List, show, split, merge and delete the shards of a logstore."""


@shard.command("list")
@click.argument("logstore", type=LOGSTORE)
@connected
@formatted
def list_(logstore: str, place: Connection, show: Show) -> None:
    """List the shards of a logstore."""
    with place.open() as client:
        show(shard_records(client.list_shards(logstore)))


@shard.command("show")
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@connected
@formatted
def show_(logstore: str, shard: int, place: Connection, show: Show) -> None:
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
    logstore: str, shard: int, into: int | None, key: str | None, place: Connection, show: Show
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
def merge(logstore: str, shard: int, place: Connection, show: Show) -> None:
    """Merge a shard with its right neighbor. Both become read-only, and a new shard takes their place."""
    with place.open() as client:
        show([shard_record(one) for one in client.merge_shards(logstore, shard)])


@shard.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("shard", type=SHARD)
@confirmed
@connected
@formatted
def delete(logstore: str, shard: int, yes: bool, place: Connection, show: Show) -> None:
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
