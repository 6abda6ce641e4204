"""Whether the lag of a group rises or falls, from the lags that a watch has seen. Pure."""

from collections.abc import Sequence

from loghub_cli.group_view import Document, name_of, status_of
from loghub_cli.output import Record

SAMPLES = 30  # as many as fit next to the table on 80 columns; the operator writes a number each minute
_BARS = "▁▂▃▄▅▆▇█"
_STEADY = 0.05  # of the larger one: what a batch more or less makes of it


def sparkline(lags: Sequence[float | None]) -> str:
    """One character for each lag, the highest bar for the largest one; a space where it is unknown."""
    known = [lag for lag in lags if lag is not None]
    top = max(known, default=0.0)
    return "".join(" " if lag is None else _BARS[_height(lag, top)] for lag in lags)


def _height(lag: float, top: float) -> int:
    return 0 if top <= 0 else min(len(_BARS) - 1, int(lag / top * len(_BARS)))


def trend(lags: Sequence[float | None]) -> str | None:
    """In a word, since a picture is not for everybody; None while too little is known."""
    known = [lag for lag in lags if lag is not None]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    if abs(last - first) <= _STEADY * max(first, last):
        return "steady"
    return "rising" if last > first else "falling"


def lag_rows(document: Document) -> list[Record]:
    """The shards that have, or may have, a lag, the largest first and unknown ones before them, and the total
    as the last row."""
    shards = [one for one in status_of(document).get("shards") or () if one.get("state") != "over"]

    def by_lag(shard: Document) -> tuple[bool, float, int]:
        seconds = shard.get("lagSeconds")
        return seconds is not None, -(seconds or 0), shard["id"]

    total = status_of(document).get("lag") or {}
    return [
        *(
            {
                "shard": one["id"],
                "consumer": one.get("consumer"),
                "lagLogs": one.get("lagLogs"),
                "lagSeconds": one.get("lagSeconds"),
            }
            for one in sorted(shards, key=by_lag)
        ),
        {
            "shard": "total",
            "consumer": None,
            "lagLogs": total.get("logs"),
            "lagSeconds": total.get("seconds"),
        },
    ]


def lag_record(document: Document) -> Record:
    """For a program that reads it."""
    *shards, total = lag_rows(document)
    return {
        "name": name_of(document),
        "lagLogs": total["lagLogs"],
        "lagSeconds": total["lagSeconds"],
        "shards": shards,
    }
