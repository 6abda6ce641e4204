"""Pipelines with state, for the tests; the first one is also the text of a module of a user."""

from pathlib import Path

from pyspark.sql import DataFrame

from loghub.contract.worker import PythonPipeline


def first_of_each_id(logs: DataFrame) -> DataFrame:
    """The first log of each id, if its repetitions come within a day."""
    rows = logs.select("__time__", logs["contents"]["id"].alias("id"), "__shard__", "__cursor__")
    return rows.withWatermark("__time__", "1 day").dropDuplicatesWithinWatermark(["id"])


DEDUPLICATE = PythonPipeline(
    function="once:first_of_each_id", files={"once.py": Path(__file__).read_text(encoding="utf-8")}
)
