"""``loghub subscription``: create, list, show, change and delete subscriptions of the embedded service, move
them, and skip logs (docs/subscriptions.md).

A subscription that is made of a consumer group begins at the group's checkpoints, and `loghub group reset
--from-subscription` goes back. Neither stops consumers. A group whose consumers run is only warned of, since
the subscription can be moved to the group's last checkpoints later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from loghub.client.port import LogHub, Position
from loghub.domain.subscription import SubscriptionType
from loghub.wire.errors import Code, LogHubError
from loghub.wire.subscriptions import MAX_KEY_FIELDS, SubscriptionSpec, SubscriptionSummary
from loghub_cli.commands import CommandGroup
from loghub_cli.connection import ServiceConnection, if_not_exists
from loghub_cli.group import ShardMove, position_words, some
from loghub_cli.options import (
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
)
from loghub_cli.output import Failed, Record
from loghub_cli.subscription_records import listed, settings_record, shown

_TYPES = click.Choice([one.value for one in SubscriptionType], case_sensitive=False)
_key = click.option(
    "--key",
    "key",
    metavar="FIELD",
    multiple=True,
    help=f"KeyShared: a field of a log that is its key; repeatable up to {MAX_KEY_FIELDS} times. Default: "
    "the key with which the log was written.",
)


@click.group(cls=CommandGroup)
def subscription() -> None:
    """Create, list, show, change and delete subscriptions; move them, and skip logs."""


@subscription.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@click.option("--type", "kind", type=_TYPES, default="Shared", show_default=True,
              help="How logs are dealt to consumers.")  # fmt: skip
@click.option("--start", type=POSITION, default="begin", show_default=True,
              help="Where shards begin: begin, end, or the time from which logs were received.")  # fmt: skip
@_key
@click.option("--in-order/--no-in-order", default=True, show_default=True,
              help="Deliver shards of a split after their parents; Shared has no order.")  # fmt: skip
@click.option("--from-group", type=GROUP, metavar="GROUP",
              help="Begin at the checkpoints of this consumer group, where it has any.")  # fmt: skip
@if_not_exists
@connected
@formatted
def create(
    logstore: str, subscription: str, place: ServiceConnection, show: Show, *, keep: bool, **values: Any
) -> None:
    """Create a subscription. Without --type, it is Shared."""
    spec = _spec(SubscriptionType(values["kind"]), values["key"], in_order=values["in_order"])
    with place.open() as client:
        found = _found(client, logstore, subscription)
        if found is None:
            group = values["from_group"]
            marks = {} if group is None else _marks_of(client, logstore, group)
            new = replace(spec, start=values["start"], marks=marks, must_be_new=True)
            try:
                client.create_subscription(logstore, subscription, new)
            except LogHubError as error:
                if error.code != Code.SUBSCRIPTION_ALREADY_EXIST:
                    raise
                found = _found(client, logstore, subscription)  # another client was faster
            else:
                rows: list[Record] = [{"shard": shard, "mark": mark} for shard, mark in sorted(marks.items())]
                from_group = {} if group is None else {"fromGroup": group, "shards": rows}
                show({**settings_record(subscription, new), **from_group})
                return
        if found is None or not keep:
            raise Failed(
                f"loghub: logstore {logstore} has the subscription {subscription} already: `loghub"
                " subscription update` changes it, and `loghub subscription seek` moves it"
            )
        if listed(found) != settings_record(subscription, spec):
            click.echo("loghub: it exists already with other settings, which are kept", err=True)
        show(listed(found))


def _found(client: LogHub, logstore: str, subscription: str) -> SubscriptionSummary | None:
    return next((one for one in client.list_subscriptions(logstore) if one.name == subscription), None)


def _spec(kind: SubscriptionType, key: Sequence[str], *, in_order: bool) -> SubscriptionSpec:
    if key and kind is not SubscriptionType.KEY_SHARED:
        raise click.UsageError(f"--key is for --type KeyShared, not for {kind}")
    if len(key) > MAX_KEY_FIELDS:
        raise click.UsageError(f"a key has at most {MAX_KEY_FIELDS} fields")
    return SubscriptionSpec(type=kind, in_order=in_order, key=tuple(key))


def _marks_of(client: LogHub, logstore: str, group: str) -> Mapping[int, str]:
    """The checkpoints of the shards that exist. Warns of consumers that still run."""
    existing = {one.shard for one in client.list_shards(logstore)}
    saved = client.get_checkpoints(logstore, group)
    running = [one.name for one in client.group_status(logstore, group).consumers]
    if running:
        click.echo(
            f"loghub: {len(running)} consumers of group {group} run ({some(running)}), and the subscription"
            " delivers again what they read from now on: stop them, and then move it to their last"
            " checkpoints with `loghub subscription seek --from-group`",
            err=True,
        )
    return {one.shard: one.cursor for one in saved if one.cursor and one.shard in existing}


@subscription.command("list")
@click.argument("logstore", type=LOGSTORE)
@connected
@formatted
def list_(logstore: str, place: ServiceConnection, show: Show) -> None:
    """List the subscriptions of a logstore."""
    with place.open() as client:
        show([listed(one) for one in client.list_subscriptions(logstore)])


@subscription.command("show")
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@connected
@formatted
def show_(logstore: str, subscription: str, place: ServiceConnection, show: Show) -> None:
    """Show a subscription with its consumers and, for each shard, its state and backlog."""
    with place.open() as client:
        show(shown(client.subscription_status(logstore, subscription)))


@subscription.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@click.option("--type", "kind", type=_TYPES, help="How logs are dealt to consumers.")
@_key
@click.option("--in-order/--no-in-order", default=None, help="Deliver shards of a split after their parents.")
@connected
@formatted
def update(  # noqa: PLR0913 - each is an option
    logstore: str,
    subscription: str,
    kind: str | None,
    key: tuple[str, ...],
    in_order: bool | None,
    place: ServiceConnection,
    show: Show,
) -> None:
    """Change the type, the order or the key of a subscription to which no consumer is connected.

    What is acknowledged stays. Another type than KeyShared has no key."""
    if kind is None and in_order is None and not key:
        raise click.UsageError("give --type, --key, --in-order or --no-in-order")
    with place.open() as client:
        old = client.subscription_status(logstore, subscription)
        new_type = old.type if kind is None else SubscriptionType(kind)
        old_key = old.key if new_type is SubscriptionType.KEY_SHARED else ()
        new = _spec(new_type, key or old_key, in_order=old.in_order if in_order is None else in_order)
        client.create_subscription(logstore, subscription, new)
        show(settings_record(subscription, new))


@subscription.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@confirmed
@connected
@formatted
def delete(logstore: str, subscription: str, yes: bool, place: ServiceConnection, show: Show) -> None:
    """Delete a subscription with everything that is acknowledged in it; its consumers are closed."""
    with place.open() as client:
        question = f"Delete subscription {subscription} of logstore {logstore} with its acknowledgments?"
        confirm(lambda: question, yes=yes)
        client.delete_subscription(logstore, subscription)
    show({"logstore": logstore, "subscription": subscription, "deleted": True})


@subscription.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@click.option(
    "--to", "position", type=POSITION, help="begin, end, or the time from which logs were received."
)
@click.option("--cursor", type=CURSOR, help="A cursor, such as an earlier mark; with one --shard.")
@click.option("--from-group", type=GROUP, metavar="GROUP", help="The checkpoints of this consumer group.")
@click.option("--shard", "shards", type=SHARD, multiple=True, help="Only this shard; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show from where to where it would move, and change nothing.")
@confirmed
@connected
@formatted
def seek(
    logstore: str, subscription: str, place: ServiceConnection, show: Show, *, yes: bool, **values: Any
) -> None:
    """Move the marks of all shards, and show which they replace: with --cursor these bring a shard back.

    Everything from the new mark on is delivered, and nothing before it. Consumers join again by
    themselves."""
    chosen: tuple[int, ...] = values["shards"]
    given = [name for name in ("position", "cursor", "from_group") if values[name] is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --to, --cursor and --from-group")
    if values["cursor"] is not None and len(chosen) != 1:
        raise click.UsageError("--cursor is of one shard: name it with --shard")
    with place.open() as client:
        before = {one.shard: one.mark for one in client.subscription_status(logstore, subscription).shards}
        if missing := sorted(set(chosen) - set(before)):
            raise click.UsageError(f"subscription {subscription} has no shard {missing[0]}")
        marks = _targets(client, logstore, chosen or tuple(before), values)
        moves = [ShardMove(shard=shard, before=before[shard], cursor=marks[shard]) for shard in sorted(marks)]
        if values["dry_run"]:
            show([one.record for one in moves])
            return
        question = f"Move {len(moves)} shards of subscription {subscription} to {_place_words(values)}?"
        confirm(lambda: question, yes=yes)
        client.seek_subscription(logstore, subscription, marks)
        show([one.record for one in moves])


def _place_words(values: Mapping[str, Any]) -> str:
    if values["position"] is not None:
        return position_words(values["position"])
    group = values["from_group"]
    return f"cursor {values['cursor']}" if group is None else f"the checkpoints of consumer group {group}"


def _targets(
    client: LogHub, logstore: str, shards: Sequence[int], values: Mapping[str, Any]
) -> dict[int, str]:
    """The cursor to which each shard moves."""
    if values["cursor"] is not None:
        return dict.fromkeys(shards, values["cursor"])
    if values["from_group"] is not None:
        group, saved = values["from_group"], _marks_of(client, logstore, values["from_group"])
        found = {shard: saved[shard] for shard in shards if shard in saved}
        if not found:
            raise Failed(
                f"loghub: consumer group {group} has no checkpoint of these shards, so nothing is moved: use"
                " --to begin, or start a consumer of the group, which saves one"
            )
        return found
    position: Position = values["position"]
    return {shard: client.get_cursor(logstore, shard, position) for shard in shards}


@subscription.command()
@click.argument("logstore", type=LOGSTORE)
@click.argument("subscription", type=SUBSCRIPTION)
@click.argument("shard", type=SHARD)
@click.option("--logs", type=click.IntRange(1), help="How many of the oldest logs without an acknowledgment.")
@click.option("--all", "every", is_flag=True, help="All logs that are there.")
@confirmed
@connected
@formatted
def skip(
    logstore: str,
    subscription: str,
    shard: int,
    place: ServiceConnection,
    show: Show,
    *,
    yes: bool,
    **values: Any,
) -> None:
    """Acknowledge the oldest logs of a shard in place of its consumers, for example one that none can
    process."""
    logs: int | None = values["logs"]
    if (logs is None) != values["every"]:
        raise click.UsageError("give --logs or --all")
    with place.open() as client:
        number = "all" if logs is None else str(logs)
        question = (
            f"Acknowledge the oldest logs ({number}) of shard {shard} of subscription {subscription}, so that"
            " no consumer gets them?"
        )
        confirm(lambda: question, yes=yes)
        skipped = client.skip_subscription(logstore, subscription, shard=shard, logs=logs)
        show({"subscription": subscription, "shard": shard, "skippedLogs": skipped})
