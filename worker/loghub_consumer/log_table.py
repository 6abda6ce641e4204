"""The recent logs of a logstore as a table, for notebooks: `read`.

It needs the extra `arrow`, no consumer group, and saves nothing. What it reads is bounded, and the table says
what it was. Endpoint, project and key come from arguments or from the variables of the command `loghub`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from loghub.client.choice import ClientKind, open_client
from loghub.client.port import Credentials, Position
from loghub.clock import SystemClock
from loghub.extras import needs
from loghub.times import parse_time
from loghub.wire.names import is_exposed

if TYPE_CHECKING:
    import pyarrow as pa

    from loghub_consumer.reading.received_logs import ReceivedLogs

# In memory it is about twice as much, pandas not counted: what a notebook holds without thinking of it.
LIMIT_MIB = 64
TIMEOUT_S = 60.0  # longer, and one thinks that the notebook hangs
SHOWN_ROWS = 20  # fit on a screen
SHOWN_CHARS = 200  # of a cell: a value may have a megabyte, which the notebook would keep in its file


class LogTable:
    """Logs in the order of their shards and cursors. The columns are the columns of the view `logs` of
    pipelines (docs/pipelines.md 1); a text that was not UTF-8 has U+FFFD in place of the wrong bytes."""

    def __init__(self, logstore: str, received: "ReceivedLogs", *, limit_mib: int) -> None:
        self._logstore = logstore
        self._received = received
        self._limit_mib = limit_mib

    def arrow(self) -> "pa.Table":
        """The table of Arrow, which is not copied."""
        return self._received.rows

    def df(self) -> Any:
        """A new `pandas.DataFrame`, in which `contents` and `__tags__` are dicts of texts. Raises
        `MissingPackageError` without pandas."""
        with needs("pandas", "LogTable.df()"):
            return self._received.rows.to_pandas(maps_as_pydicts="lossy")

    @property
    def is_complete(self) -> bool:
        """False if a limit ended the reading, or logs expired meanwhile."""
        return self._received.cut is None and not self._received.missing

    @property
    def summary(self) -> str:
        """What was read, in one line."""
        return self._received.summary(self._logstore, more=f"limit_mib is {self._limit_mib}")

    def __len__(self) -> int:
        return int(self._received.rows.num_rows)

    def __repr__(self) -> str:
        return f"<LogTable: {self.summary}>"

    def _repr_html_(self) -> str:
        rows = self._received.rows.slice(0, SHOWN_ROWS)
        heads = "".join(f"<th>{escape(name)}</th>" for name in rows.schema.names)
        lines = "".join(
            f"<tr>{''.join(_cells(row.values()))}</tr>" for row in rows.to_pylist(maps_as_pydicts="lossy")
        )
        more = len(self) - rows.num_rows
        rest = f"<p>{more:,} more rows: .df() and .arrow() have all</p>" if more else ""
        return (
            f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>{rest}"
            f"<p>{escape(self.summary)}</p>"
        )


def _cells(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if value is None:
            text = ""
        elif isinstance(value, dict):
            text = "  ".join(f"{name}={part}" for name, part in value.items())
        else:
            text = str(value)
        shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} (+{len(text) - SHOWN_CHARS:,})"
        yield f"<td>{escape(shown)}</td>"


def read(  # noqa: PLR0913 - each is an option
    logstore: str,
    *,
    since: str | int | datetime = "10m",
    until: str | int | datetime | None = None,
    project: str | None = None,
    endpoint: str | None = None,
    credentials: Credentials | Callable[[], Credentials] | None = None,
    client: ClientKind = "http",
    limit_mib: int = LIMIT_MIB,
    timeout_s: float = TIMEOUT_S,
) -> LogTable:
    """The logs that a logstore received from ``since`` up to, not including, ``until``; None: until now.

    A time is unix seconds, a `datetime`, or a text: an age such as ``10m``, a time such as
    ``2026-01-31T08:00:00Z``, or ``begin`` for the first log. ``limit_mib`` limits what is read,
    decompressed, and ``timeout_s`` for how long. The defaults of ``project``, ``endpoint`` and
    ``credentials`` are in the variables LOGHUB_PROJECT, LOGHUB_ENDPOINT, LOGHUB_ACCESS_KEY_ID,
    LOGHUB_ACCESS_KEY_SECRET, LOGHUB_SECURITY_TOKEN and LOGHUB_REGION.

    Raises `ValueError` for an invalid or missing value, `MissingPackageError` without pyarrow, and
    `LogHubException`."""
    with needs("loghub-consumer[arrow]", "loghub_consumer.read"):
        from loghub_consumer.reading.received_logs import ReadBounds, read_received

    clock = SystemClock()
    begin = _position(since, clock.unix_s())
    end: Position = "end" if until is None else _position(until, clock.unix_s())
    if end == "begin" or (isinstance(begin, int) and isinstance(end, int) and begin >= end):
        raise ValueError(f"since is {since!r}, which is not before until, {until!r}")
    if limit_mib < 1 or timeout_s <= 0:
        raise ValueError(f"limit_mib is {limit_mib} and timeout_s {timeout_s}; both must be above 0")
    where = endpoint or _variable("LOGHUB_ENDPOINT", "endpoint")
    if is_exposed(where, ()):
        raise ValueError(f"{where} is http on the public internet; use https, so that nobody reads the logs")
    opened = open_client(
        client,
        where,
        project or _variable("LOGHUB_PROJECT", "project"),
        credentials=credentials or _key(),
        agent="loghub-consumer",
    )
    with closing(opened) as service:
        bounds = ReadBounds(begin=begin, end=end, max_bytes=limit_mib << 20, max_s=timeout_s)
        received = read_received(service, logstore, bounds=bounds, clock=clock)
    return LogTable(logstore, received, limit_mib=limit_mib)


def _position(time: str | int | datetime, now_unix_s: float) -> Position:
    if isinstance(time, datetime):
        return int(time.timestamp())
    if time == "begin":
        return "begin"
    return parse_time(str(time), now_unix_s=now_unix_s)


def _variable(name: str, argument: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"give {argument}, or set the variable {name}")
    return value


def _key() -> Credentials:
    return Credentials(
        access_key_id=_variable("LOGHUB_ACCESS_KEY_ID", "credentials"),
        access_key_secret=_variable("LOGHUB_ACCESS_KEY_SECRET", "credentials"),
        security_token=os.environ.get("LOGHUB_SECURITY_TOKEN", ""),
        region=os.environ.get("LOGHUB_REGION", ""),
    )
