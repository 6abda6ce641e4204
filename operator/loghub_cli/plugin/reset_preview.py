"""Which logs a reset of checkpoints brings again, and which it skips, before it is done. Pure.

The object's status has the checkpoints, and roughly the time up to which a shard is consumed. With the
cursors of the log service (`loghub_worker.positions`, run in a worker) the numbers are exact; without them
the answer is in words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_cli.group_view import Document, name_of, status_of
from loghub_cli.output import Record, unix_s, utc

ResetTo = Literal["Begin", "End", "Timestamp", "ConfigMap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to; ``unix_s`` is set for a Timestamp. The ConfigMap ``config_map`` has ``cursors``."""

    to: ResetTo
    shards: tuple[int, ...] = ()  # () for all
    unix_s: int | None = None
    config_map: str | None = None
    cursors: Mapping[int, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        match self.to:
            case "Begin":
                return "the oldest log"
            case "End":
                return "the end"
            case "Timestamp":
                return f"the logs received from {utc(self.unix_s)}"
            case "ConfigMap":
                return f"the checkpoints of ConfigMap {self.config_map}"

    @property
    def position(self) -> str:
        """The argument of `loghub_worker.positions`; of a ConfigMap only begin and end are of use."""
        return str(self.unix_s) if self.to == "Timestamp" else "end" if self.to == "End" else "begin"

    def request(self, nonce: str) -> dict[str, object]:
        """`spec.resetCheckpoints`; None removes what an earlier reset has left there."""
        return {
            "to": self.to,
            "timestamp": utc(self.unix_s),
            "configMapName": self.config_map,
            "shards": list(self.shards) or None,
            "nonce": nonce,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorsOfShard:
    """The cursors of one shard, as the log service has them now; ``target`` belongs to the position."""

    begin: int
    end: int
    target: int


def ends_of(answer: Sequence[Mapping[str, object]]) -> dict[int, CursorsOfShard]:
    """The answer of `loghub_worker.positions`. Raises ValueError if it is none."""
    try:
        return {
            int(str(one["shard"])): CursorsOfShard(
                begin=wire_cursor.decode(str(one["begin"])),
                end=wire_cursor.decode(str(one["end"])),
                target=wire_cursor.decode(str(one["target"])),
            )
            for one in answer
        }
    except (KeyError, TypeError, MalformedCursor) as error:
        raise ValueError(str(error)) from error


def preview(document: Document, target: Target, ends: Mapping[int, CursorsOfShard] | None) -> Record:
    """``ends`` None: nobody could ask for them. A log group has one or more logs."""
    rows = list(_rows(document, target, ends))
    return {
        "name": name_of(document),
        "to": target.words,
        "logGroupsThatComeAgain": _sum(rows, "comeAgain"),
        "logGroupsThatAreSkipped": _sum(rows, "areSkipped"),
        "shards": rows,
    }


def unknown_shards(document: Document, target: Target) -> list[int]:
    """The chosen shards that the status does not list."""
    known = {one["id"] for one in status_of(document).get("shards") or ()}
    return sorted(set(target.shards) - known)


def _sum(rows: Sequence[Record], key: str) -> int | None:
    numbers = [row[key] for row in rows]
    return None if None in numbers else sum(number for number in numbers if isinstance(number, int))


def _rows(document: Document, target: Target, ends: Mapping[int, CursorsOfShard] | None) -> Iterator[Record]:
    for shard in status_of(document).get("shards") or ():
        number = shard["id"]
        if (target.shards and number not in target.shards) or (
            target.to == "ConfigMap" and number not in target.cursors
        ):
            continue
        ahead = _ahead(shard, target, None if ends is None else ends.get(number))
        yield {
            "shard": number,
            "consumedUpTo": utc(_consumed_up_to(shard)),
            "comeAgain": None if ahead is None else max(-ahead, 0),
            "areSkipped": None if ahead is None else max(ahead, 0),
            "thatIs": _words(shard, target) if ahead is None else None,
        }


def _ahead(shard: Document, target: Target, ends: CursorsOfShard | None) -> int | None:
    """By how many log groups the target is ahead of the checkpoint, negative behind it; None: unknown."""
    saved = _decoded(shard.get("checkpoint"))
    if saved is None:
        return None
    if target.to == "ConfigMap":
        to = _decoded(target.cursors[shard["id"]])
        if to is None:
            return None
        # Logs that retention has removed come neither again nor are they skipped.
        return to - saved if ends is None else max(to, ends.begin) - max(saved, ends.begin)
    return None if ends is None else max(ends.target, ends.begin) - max(saved, ends.begin)


def _decoded(cursor: str | None) -> int | None:
    try:
        return None if not cursor else wire_cursor.decode(cursor)
    except MalformedCursor:
        return None


def _consumed_up_to(shard: Document) -> float | None:
    """The time of receipt of the oldest log that is not consumed; of the observation if there is none."""
    observed, lag_s = unix_s(shard.get("observedAt")), shard.get("lagSeconds")
    return None if observed is None or lag_s is None else observed - lag_s


def _words(shard: Document, target: Target) -> str:
    consumed, logs = _consumed_up_to(shard), shard.get("lagLogs")
    match target.to:
        case "Begin":
            return "all logs up to the checkpoint come again"
        case "End":
            return "all unread logs are skipped" if logs is None else f"{logs} logs are skipped"
        case "Timestamp" if consumed is not None and target.unix_s is not None:
            if target.unix_s < consumed:
                return f"what was received from {utc(target.unix_s)} to {utc(consumed)} comes again"
            return f"what was received from {utc(consumed)} to {utc(target.unix_s)} is skipped"
        case _:
            return "not known"
