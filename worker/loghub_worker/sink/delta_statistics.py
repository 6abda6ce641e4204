"""The statistics of a Parquet file as a Delta table keeps them: rows, and nulls and bounds of each column.

Readers skip files by them, so a bound may be wide but never wrong. They come from the footer that Spark has
written; what it does not say is left out.
"""

import datetime
import decimal
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from loghub_worker.sink.batch_sink import RowsRejectedError

INDEXED_COLUMNS = 32  # the Delta default; more would only make the log longer
MAX_TEXT = 32  # characters of a bound, as other writers have it
_LAST_CHARACTER = "\U0010ffff"
_MILLISECOND = datetime.timedelta(milliseconds=1)


def file_statistics(file: Path, *, without_bounds: Collection[str] = ()) -> tuple[int, str]:
    """The number of rows of a file, and its statistics as JSON, without the bounds of some columns. Raises
    `RowsRejectedError` if they show a text that is no valid UTF-8."""
    try:
        return _rows_and_statistics(file, without_bounds)
    except UnicodeDecodeError as error:
        raise RowsRejectedError(
            f"a text is not valid UTF-8 ({error}), so other readers could not read the table: use"
            " make_valid_utf8(column) in the query"
        ) from None


def _rows_and_statistics(file: Path, without_bounds: Collection[str]) -> tuple[int, str]:
    metadata = pq.read_metadata(file)
    rows = int(metadata.num_rows)
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name, column in _columns(metadata):
        found = [
            metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)
        ]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        with_values = [one for one in found if one.null_count < one.num_values + one.null_count]
        if name in without_bounds or not with_values or not all(one.has_min_max for one in with_values):
            continue
        try:
            low, high = (
                _bound(min(one.min for one in with_values), up=False),
                _bound(max(one.max for one in with_values), up=True),
            )
        except OverflowError:  # of a date or time before the year 1 or after 9999, which Python has not
            continue
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    statistics = {"numRecords": rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return rows, msgspec.json.encode(statistics).decode()


def _columns(metadata: Any) -> Iterator[tuple[str, int]]:
    """The names and numbers of the first columns that have one value for each row."""
    schema = metadata.schema
    for number in range(min(len(schema), INDEXED_COLUMNS)):
        column = schema.column(number)
        # A path with a dot is a field of a nested column, or a top-level name with a dot: both are left out.
        if column.path == column.name and "." not in column.path and not column.max_repetition_level:
            yield column.name, number


def _bound(value: Any, *, up: bool) -> Any:
    """A bound as JSON; None if there is none that is surely right."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) and value != 0 else None  # 0.0 and -0.0 are bounds of each other
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return _text(value, up=up)
    if isinstance(value, datetime.datetime):
        return _time(value, up=up)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return msgspec.Raw(format(value, "f").encode()) if isinstance(value, decimal.Decimal) else None


def _text(value: str, *, up: bool) -> str | None:
    if len(value) <= MAX_TEXT:
        return value
    if not up:
        return value[:MAX_TEXT]
    return None if value[MAX_TEXT] == _LAST_CHARACTER else value[:MAX_TEXT] + _LAST_CHARACTER


def _time(value: datetime.datetime, *, up: bool) -> str | None:
    """To the millisecond, as other writers have it."""
    if value.tzinfo is None:
        return None
    utc = value.astimezone(datetime.UTC)
    utc -= datetime.timedelta(microseconds=utc.microsecond % 1000)
    if up and utc != value:
        utc += _MILLISECOND
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03}Z"
