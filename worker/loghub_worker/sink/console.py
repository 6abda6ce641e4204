"""The sink that prints rows to the worker's own output, for trying out a pipeline."""

from typing import TextIO

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub_worker.sink.batch_sink import TIMES, AtLeastOnceSink

log = structlog.get_logger()


class Console(AtLeastOnceSink):
    """The first rows of each batch as JSON lines, at least once, for trying out a pipeline."""

    def __init__(self, max_rows: int, out: TextIO) -> None:
        self._max_rows = max_rows
        self._out = out

    def check(self, empty: DataFrame) -> None:
        _as_json(empty).collect()

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        lines = _as_json(result).persist()  # otherwise `count` and `take` would each read the logs
        try:
            rows = lines.count()
            shown = [row[0] for row in lines.take(self._max_rows)]
        finally:
            lines.unpersist()
        self._out.writelines(f"{line}\n" for line in shown)
        self._out.flush()
        if rows > len(shown):
            log.info("only the first rows of the batch are shown", shown=len(shown), rows=rows)
        return rows


def _as_json(rows: DataFrame) -> DataFrame:
    return rows.select(F.to_json(F.struct("*"), TIMES))
