"""Arrow batches as the CSV that COPY reads: texts are in quotes, and nulls are empty."""

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from loghub_worker.sink.batch_sink import RowsRejectedError

_OPTIONS = pa.csv.WriteOptions(include_header=False)
# Arrow writes years with 16 bits: later ones come out as others, which the database takes. Years before 1 it
# writes in a form that the database refuses.
_FIRST_DAY, _LAST_DAY = -719_162, 11_248_737  # since 1970: 0001-01-01 and 32767-12-31
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def csv_of(batch: pa.RecordBatch) -> memoryview:
    """The rows as UTF-8. Raises `RowsRejectedError` if there is a date or time that has no text."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _require_years(name, column)
    text = io.BytesIO()
    pa.csv.write_csv(batch, text, _OPTIONS)
    return text.getbuffer()


def _require_years(name: str, column: pa.Array) -> None:
    if pa.types.is_date32(column.type):
        numbers, day = column.cast(pa.int32()), 1
    elif pa.types.is_timestamp(column.type):
        numbers, day = column.cast(pa.int64()), _DAY[column.type.unit]
    else:
        return
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None:  # nulls only
        return
    # A day of the last year is left to the time zone.
    if bounds["min"] < _FIRST_DAY * day or bounds["max"] >= _LAST_DAY * day:
        raise RowsRejectedError(
            f"the column {name!r} has a date or time before the year 1 or after 32767, perhaps because"
            " milliseconds were taken for seconds: change it in the query"
        )
