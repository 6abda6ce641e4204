"""The commands of ``loghub group`` that show and move checkpoints.

A forced checkpoint is saved whether or not a consumer holds the shard. A consumer that runs keeps its own
position and saves it again, so a reset of a group whose consumers run is refused; for a group of the operator
there is ``spec.resetCheckpoints``, which stops the workers first.
"""

from dataclasses import dataclass

import click

from loghub.client.port import CheckpointInfo, LogHub, Position
from loghub.clock import SystemClock
from loghub.wire.errors import LogHubException
from loghub_operator.cli.commands import Command
from loghub_operator.cli.connection import Connection
from loghub_operator.cli.failures import Failed
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

_despite_consumers = click.option(
    "--live", is_flag=True, help="Do it although consumers run, which take their checkpoints back."
)


@click.command(cls=Command)
@click.argument("logstore", type=LOGSTORE)
@click.argument("group", type=GROUP)
@connected
@formatted
def checkpoints(logstore: str, group: str, place: Connection, show: Show) -> None:
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
    logstore: str, group: str, shard: int, cursor: str, place: Connection, show: Show, **holder: str | bool
) -> None:
    """Set the checkpoint of one shard to a cursor, and show which it replaces."""
    consumer, force = str(holder["consumer"]), bool(holder["force"])
    if not consumer and not force:
        raise click.UsageError("name the holder of the shard with --consumer, or set it with --force")
    with place.open() as client:
        if force and not holder["live"]:
            _reject_live(client, logstore, group)
        move = _Move(shard=shard, before=_saved(client, logstore, group).get(shard, ""), cursor=cursor)
        client.update_checkpoint(logstore, group, shard=shard, cursor=cursor, consumer=consumer, force=force)
        show([move.record])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """Of one shard; what it replaces is nowhere else afterwards."""

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
@click.option("--to", "position", type=POSITION, required=True,
              help="begin, end, or the time from which logs were received.")  # fmt: skip
@click.option("--shard", "shards", type=SHARD, multiple=True, help="Only this shard; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show from where to where it would move, and change nothing.")
@_despite_consumers
@confirmed
@connected
@formatted
def reset(
    logstore: str, group: str, position: Position, place: Connection, show: Show, **values: object
) -> None:
    """Set the checkpoints of all shards to a position, and show which they replace: with `set-checkpoint`
    these bring the group back. Stop the consumers first: one that runs goes on where it is, and saves its own
    checkpoint again."""
    chosen = values["shards"]
    assert isinstance(chosen, tuple)
    with place.open() as client:
        known = [one.shard for one in client.list_shards(logstore)]
        if missing := sorted(set(chosen) - set(known)):
            raise click.UsageError(f"logstore {logstore} has no shard {missing[0]}")
        # The group exists, before anybody is asked.
        before = _saved(client, logstore, group)
        moves = [
            _Move(
                shard=shard,
                before=before.get(shard, ""),
                cursor=client.get_cursor(logstore, shard, position),
            )
            for shard in list(chosen) or known
        ]
        if values["dry_run"]:
            show([one.record for one in moves])
            return
        if not values["live"]:
            _reject_live(client, logstore, group)
        question = (
            f"Set the checkpoints of {len(moves)} shards of consumer group {group} to {_words(position)}?"
        )
        confirm(lambda: question, yes=bool(values["yes"]))
        _carry_out(client, logstore, group, moves)
        show([one.record for one in moves])


def _carry_out(client: LogHub, logstore: str, group: str, moves: list[_Move]) -> None:
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
            raise Failed(
                f"loghub: {len(running)} consumers of group {group} run ({_some(running)}): {remedy}"
            )
        return
    timeout_s = next((one.timeout_s for one in client.list_groups(logstore) if one.name == group), 0)
    now_us = SystemClock().unix_s() * 1e6
    saved = client.get_checkpoints(logstore, group)
    recent = [
        one.consumer for one in saved if one.consumer and now_us - one.updated_unix_us < timeout_s * 1e6
    ]
    if recent:
        raise Failed(
            f"loghub: consumers of group {group} have saved checkpoints within its timeout ({_some(recent)}):"
            f" {remedy}"
        )
    click.echo(
        "loghub: this log service does not say which consumers run; one that does takes its checkpoint"
        " back, as `loghub group checkpoints` shows a while later",
        err=True,
    )


def _some(names: list[str]) -> str:
    shown = sorted(set(names))
    return ", ".join(shown[:3]) + (" and others" if len(shown) > 3 else "")


def _words(position: Position) -> str:
    return f"the {position}" if isinstance(position, str) else str(utc(position))


def _saved(client: LogHub, logstore: str, group: str) -> dict[int, str]:
    return {one.shard: one.cursor for one in client.get_checkpoints(logstore, group)}


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
