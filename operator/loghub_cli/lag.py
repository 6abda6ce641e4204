"""``loghub lag``: how far consumer groups are behind, once or again and again."""

import json
import sys
from collections.abc import Sequence

import click

from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub.wire.errors import Code, LogHubError
from loghub_cli.commands import Command
from loghub_cli.connection import ServiceConnection
from loghub_cli.kafka_groups import (
    SLS,
    group_lag,
    kafka_group,
    kafka_group_instead,
    kafka_groups,
    lag_of,
    lag_record,
    may_be_of_sls,
    total,
)
from loghub_cli.options import ANY_GROUP, DURATION, LOGSTORE, connected, format_option, of_kafka
from loghub_cli.output import Format, Record, on_one_line, render, utc
from loghub_cli.patience import Patience, interruption

RETRY_FOR_S = 60.0  # the default of `tail`, which follows the same service
_CLEAR = "\x1b[H\x1b[2J"


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=ANY_GROUP, required=False)
@of_kafka
@click.option("-w", "--watch", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", type=DURATION, default=2.0, show_default=True, help="Seconds between two looks.")
@format_option
@connected
def lag(  # noqa: PLR0913 - each is an option
    logstore: str,
    group: str | None,
    kafka: bool,
    watch: bool,
    interval: float,
    output: str,
    place: ServiceConnection,
) -> None:
    """Show how far a consumer group is behind, for each shard and in total; without GROUP, every group.

    A group of Kafka clients is shown if no other group has the name, or with --kafka.
    """
    form = Format(output)
    with place.open() as client, interruption() as stop:

        def look() -> list[Record]:
            if group is None:
                return _every(client, logstore, kafka=kafka)
            return [_one(client, logstore, group, kafka=kafka)]

        # Like `tail`, a watch outlives a restart of the service.
        patience = Patience(SystemClock(), seconds=RETRY_FOR_S if watch else 0.0, stop=stop)
        while True:
            records = patience.call(look, repeats_unsure=True)
            click.echo(_text(records, form, one=group is not None, watch=watch))
            if not watch or stop.wait(interval):
                return


def _every(client: LogHub, logstore: str, *, kafka: bool) -> list[Record]:
    if kafka:
        of_clients, of_sls = client.list_kafka_groups(logstore), []
    else:
        of_sls = [_of_sls(client, logstore, one.name) for one in client.list_groups(logstore)]
        of_clients = kafka_groups(client, logstore)
    return [*of_sls, *(lag_of(one, observed=utc(SystemClock().unix_s())) for one in of_clients)]


def _one(client: LogHub, logstore: str, group: str, *, kafka: bool) -> Record:
    if not kafka and may_be_of_sls(group):
        try:
            return _of_sls(client, logstore, group)
        except LogHubError as error:
            if error.code != Code.CONSUMER_GROUP_NOT_EXIST:
                raise
    find = kafka_group if kafka else kafka_group_instead
    return lag_of(find(client, logstore, group), observed=utc(SystemClock().unix_s()))


def _of_sls(client: LogHub, logstore: str, group: str) -> Record:
    now_unix_s = SystemClock().unix_s()
    shards = group_lag(client, logstore, group, now_unix_s=now_unix_s)
    return {
        "group": group,
        "kind": SLS,
        "observed": utc(now_unix_s),
        **lag_record(total(one.lag for one in shards)),
        "shards": [
            {
                "shard": shard.shard,
                "consumer": shard.consumer or None,
                "checkpoint": shard.checkpoint or None,
                **lag_record(shard.lag),
            }
            for shard in shards
        ],
    }


def _text(records: Sequence[Record], form: Format, *, one: bool, watch: bool) -> str:
    if form is Format.TABLE:
        tables = "\n\n".join(_table(record) for record in records) or "(no consumer groups)"
        return f"{_CLEAR}{tables}" if watch and sys.stdout.isatty() else tables
    value = records[0] if one else records
    if watch:  # one line, or one document, for each look
        return json.dumps(value) if form is Format.JSON else f"---\n{render(value, form)}"
    return render(value, form)


def _table(record: Record) -> str:
    """The shards with the total as the last row."""
    shards = record["shards"]
    assert isinstance(shards, list)
    sums = {key: value for key, value in record.items() if key.startswith("lag")}
    rows = [*shards, {"shard": "total", **sums}]
    about = [record["group"], *(record[key] for key in ("state",) if key in record), record["observed"]]
    return f"{on_one_line('  '.join(map(str, about)))}\n{render(rows, Format.TABLE)}"
