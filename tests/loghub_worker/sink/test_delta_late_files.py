"""Files in the staging folder of a Delta table that Spark has not committed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from loghub_worker.batch_plan import Range
from tests.loghub_worker.sink.delta_tables import delivered, ids, opened, rows, table_sink


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
