"""What of a batch must not come into a Delta table."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema

from loghub_consumer.batch_plan import Range
from loghub_worker.sink.batch_sink import RowsRejectedError
from tests.loghub_worker.sink.delta_tables import (
    EmptyResult,
    column,
    delivered,
    ids,
    opened,
    rows,
    table_sink,
)


def test_what_an_attempt_of_a_lost_executor_writes_late_is_not_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens its file after the job was committed, below Spark's own folder in the staging folder."""
    sink = table_sink(str(tmp_path / "table"), tmp_path)
    opened(sink, 10)
    write = sink._write

    def write_late(result: Any, batch: str) -> None:
        write(result, batch)
        late = sink._files.stage(batch) / "_temporary" / "0" / "_temporary" / "attempt_1"
        late.mkdir(parents=True)
        pq.write_table(result, late / "part-00001.parquet")

    monkeypatch.setattr(sink, "_write", write_late)
    assert sink.write(rows(0, 10, 20), "w-0-b") == 10
    sink.publish("w-0-b", (Range(0, 10, 20),), lambda: True)
    assert delivered(tmp_path / "table") == Counter(ids(0, 10, 20))


def test_rows_that_may_be_null_where_the_table_is_not_are_refused(tmp_path: Path) -> None:
    """The columns that were checked could not be: a function made others of these logs."""
    path = str(tmp_path / "table")
    DeltaTable.create(path, DeltaSchema([DeltaField("id", "string", nullable=False)]))
    sink = table_sink(path, tmp_path, empty=EmptyResult(column("id", nullable=False)))
    opened(sink, 10)
    with pytest.raises(RowsRejectedError, match="'id' must not be null, and these rows may be: use coalesce"):
        sink.write(pa.table({"id": ["a", None]}), "w-0-b")
    sure = pa.schema([pa.field("id", pa.string(), nullable=False)])
    assert sink.write(pa.table({"id": ["a"]}, schema=sure), "w-0-c") == 1
