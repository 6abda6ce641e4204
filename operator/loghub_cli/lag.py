"""``loghub lag``: how far consumer groups and subscriptions are behind, once or again and again."""

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
    KAFKA,
    SLS,
    group_lag,
    kafka_group,
    kafka_groups,
    lag_of,
    lag_record,
    may_be_of_sls,
    total,
)
from loghub_cli.options import (
    DURATION,
    GROUP_OR_SUBSCRIPTION,
    LOGSTORE,
    connected,
    format_option,
    of_kafka,
)
from loghub_cli.output import Format, Record, on_one_line, render, utc
from loghub_cli.patience import Patience, interruption
from loghub_cli.subscription_records import SUBSCRIPTION, subscriptions
from loghub_cli.subscription_records import lag_of as lag_of_subscription

RETRY_FOR_S = 60.0  # the default of `tail`, which follows the same service
_CLEAR = "\x1b[H\x1b[2J"


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP_OR_SUBSCRIPTION, required=False, metavar="[GROUP]")
@of_kafka
@click.option("--subscription", "of_subscriptions", is_flag=True,
              help="Only subscriptions, which may have the names of groups.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", type=DURATION, default=2.0, show_default=True, help="Seconds between two looks.")
@format_option
@connected
def lag(  # noqa: PLR0913 - each is an option
    logstore: str,
    group: str | None,
    kafka: bool,
    of_subscriptions: bool,
    watch: bool,
    interval: float,
    output: str,
    place: ServiceConnection,
) -> None:
    """Show how far a consumer group or a subscription is behind, for each shard and in total; without GROUP,
    all of them.

    A group of Kafka clients is shown if no other group has the name, or with --kafka, and a subscription if
    no group has it, or with --subscription.
    """
    if kafka and of_subscriptions:
        raise click.UsageError("give one of --kafka and --subscription")
    kind = KAFKA if kafka else SUBSCRIPTION if of_subscriptions else None
    form = Format(output)
    with place.open() as client, interruption() as stop:

        def look() -> list[Record]:
            if group is None:
                return _every(client, logstore, kind)
            return [_one(client, logstore, group, kind)]

        # Like `tail`, a watch outlives a restart of the service.
        patience = Patience(SystemClock(), seconds=RETRY_FOR_S if watch else 0.0, stop=stop)
        while True:
            records = patience.call(look, repeats_unsure=True)
            click.echo(_text(records, form, one=group is not None, watch=watch))
            if not watch or stop.wait(interval):
                return


def _every(client: LogHub, logstore: str, kind: str | None) -> list[Record]:
    """All readers of the logstore, or the readers of one kind: `KAFKA` or `SUBSCRIPTION`."""
    records = []
    if kind is None:
        records += [_of_sls(client, logstore, one.name) for one in client.list_groups(logstore)]
    if kind in (None, KAFKA):
        of_clients = client.list_kafka_groups(logstore) if kind else kafka_groups(client, logstore)
        records += [lag_of(one, observed=_now()) for one in of_clients]
    if kind in (None, SUBSCRIPTION):
        found = client.list_subscriptions(logstore) if kind else subscriptions(client, logstore)
        records += [_of_subscription(client, logstore, one.name) for one in found]
    return records


def _one(client: LogHub, logstore: str, name: str, kind: str | None) -> Record:
    if kind == SUBSCRIPTION:
        return _of_subscription(client, logstore, name)
    if kind == KAFKA:
        return lag_of(kafka_group(client, logstore, name), observed=_now())
    if may_be_of_sls(name):
        try:
            return _of_sls(client, logstore, name)
        except LogHubError as error:
            if error.code != Code.CONSUMER_GROUP_NOT_EXIST:
                raise
    for group in kafka_groups(client, logstore, name):
        return lag_of(group, observed=_now())
    if any(one.name == name for one in subscriptions(client, logstore)):
        return _of_subscription(client, logstore, name)
    message = f"logstore {logstore} has no consumer group or subscription {name}"
    raise LogHubError.of(Code.CONSUMER_GROUP_NOT_EXIST, message)


def _now() -> str | None:
    return utc(SystemClock().unix_s())


def _of_subscription(client: LogHub, logstore: str, name: str) -> Record:
    return lag_of_subscription(client.subscription_status(logstore, name), observed=_now())


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
        tables = (
            "\n\n".join(_table(record) for record in records) or "(no consumer groups and no subscriptions)"
        )
        return f"{_CLEAR}{tables}" if watch and sys.stdout.isatty() else tables
    value = records[0] if one else records
    if watch:  # one line, or one document, for each look
        return json.dumps(value) if form is Format.JSON else f"---\n{render(value, form)}"
    return render(value, form)


def _table(record: Record) -> str:
    """The shards with the total as the last row."""
    shards = record["shards"]
    assert isinstance(shards, list)
    sums = {key: value for key, value in record.items() if key.startswith("lag") or key == "unackedLogs"}
    rows = [*shards, {"shard": "total", **sums}]
    about = [record["group"], *(record[key] for key in ("state",) if key in record), record["observed"]]
    return f"{on_one_line('  '.join(map(str, about)))}\n{render(rows, Format.TABLE)}"
