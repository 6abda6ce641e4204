"""Which pipelines with state are taken, on a real Spark; and which settings go with state."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.sinks import LogstoreSink, ParquetSink
from loghub.contract.worker import CopyPipeline, OnFailure
from loghub_consumer.errors import FatalError
from loghub_worker.query.stateful_plan import refuse_settings, refuse_unbounded
from loghub_worker.query.transform import PythonTransform, SqlTransform
from loghub_worker.sink.logstore.sink import FORMAT
from tests.loghub_consumer.reading.options import source_options
from tests.loghub_worker.stateful_pipelines import first_of_each_id
from tests.loghub_worker.support import worker_config

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

WINDOWS = """
SELECT window.start, contents['id'] AS id, count(*) AS logs
FROM logs WATERMARK __time__ DELAY OF INTERVAL 1 MINUTE
GROUP BY window(__time__, '1 minute'), contents['id']
"""


@pytest.fixture
def logs(spark: SparkSession, tmp_path: Any) -> DataFrame:
    """A stream of logs, which is never started."""
    options = source_options("http://unused", tmp_path, tmp_path, max_log_groups=1, cores=1)
    return spark.readStream.format(FORMAT).option("settings", options.to_option()).load()


def with_watermark(logs: DataFrame) -> DataFrame:
    return logs.select("__time__", "__topic__").withWatermark("__time__", "1 minute")


def own_time(logs: DataFrame) -> Column:
    return F.to_timestamp(logs["contents"]["t"])


def once(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "1 minute").dropDuplicatesWithinWatermark(["__topic__"])


KEPT: dict[str, Callable[[DataFrame], DataFrame]] = {
    "deduplication": first_of_each_id,
    "deduplication-by-time": lambda logs: with_watermark(logs).dropDuplicates(["__topic__", "__time__"]),
    "windows": lambda logs: with_watermark(logs).groupBy(F.window("__time__", "1 minute")).count(),
    "windows-in-sql": lambda logs: SqlTransform(WINDOWS).check(logs),
    "a-time-of-the-contents": lambda logs: once(
        logs.select(F.least(own_time(logs), "__time__").alias("t"), "__topic__")
    ),
    "not-after-the-present": lambda logs: once(
        logs.select(own_time(logs).alias("own"), "__topic__").select(
            F.least("own", F.current_timestamp()).alias("t"), "__topic__"
        )
    ),
    "whole-minutes": lambda logs: once(
        logs.select(F.date_trunc("minute", "__time__").alias("minute"), "__topic__")
        .filter("minute > '2020-01-01'")
        .withColumn("t", F.col("minute") + F.expr("INTERVAL 30 SECONDS"))
    ),
    "sessions": lambda logs: (
        with_watermark(logs).groupBy(F.session_window("__time__", "1 minute"), "__topic__").count()
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_state_that_spark_gives_up_again_is_taken(name: str, logs: DataFrame) -> None:
    refuse_unbounded(KEPT[name](logs))


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "no-state": (lambda logs: logs.select("__topic__"), "keeps no state"),
    "no-watermark": (lambda logs: logs.dropDuplicates(["__topic__"]), "keeps every row forever"),
    "another-column": (lambda logs: with_watermark(logs).dropDuplicates(["__topic__"]), "keeps every row"),
    "distinct": (
        lambda logs: SqlTransform("SELECT DISTINCT __topic__ FROM logs").check(logs),
        "keeps every row|append",
    ),
    "groups-without-watermark": (lambda logs: logs.groupBy("__topic__").count(), "append.*without watermark"),
    "limit": (lambda logs: with_watermark(logs).limit(3), "LIMIT sees the logs of one micro-batch"),
    "sort": (lambda logs: logs.orderBy("__time__"), "[Ss]ort"),
    "unbounded": (
        lambda logs: once(logs.select(own_time(logs).alias("t"), "__topic__")),
        r"follows t, .* as least\(t, __time__\)",
    ),
    "unbounded-in-sql": (
        lambda logs: SqlTransform(
            WINDOWS.replace("__time__ DELAY", "to_timestamp(contents['t']) AS t DELAY").replace(
                "(__time__", "(t"
            )
        ).check(logs),
        "follows t, ",
    ),
    "unbounded-in-a-part": (
        lambda logs: once(logs.select(F.coalesce(own_time(logs), "__time__").alias("t"), "__topic__")),
        "follows t, ",
    ),
    "unbounded-by-a-function": (
        lambda logs: once(logs.select(F.udf(lambda t: t, "timestamp")("__time__").alias("t"), "__topic__")),
        "follows t, ",
    ),
    "self-join": (
        lambda logs: with_watermark(logs).alias("a").join(with_watermark(logs).alias("b"), "__topic__"),
        "a join of logs with logs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_grows_for_ever_or_is_of_one_micro_batch_is_refused(name: str, logs: DataFrame) -> None:
    function, message = REFUSED[name]
    with pytest.raises(FatalError, match=f"(?s){message}") as raised:
        refuse_unbounded(function(logs))
    assert raised.value.reason == "InvalidPipeline"


def test_an_action_on_the_stream_is_refused(logs: DataFrame) -> None:
    def count(rows: DataFrame) -> DataFrame:
        rows.count()
        return rows

    with pytest.raises(FatalError, match="writeStream") as raised:
        PythonTransform("count:run", count, None).check(logs)
    assert raised.value.reason == "InvalidPipeline"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_failure": OnFailure(policy="Skip")}, "Skip leaves out logs.*use Retry or Stop"),
        ({"spark_master": "spark://master:7077"}, r"must be local\[\*\]"),
        ({"per_batch": True}, "perBatch"),
        ({"pipeline": CopyPipeline(), "sink": LogstoreSink(project="p", logstore="l")}, "copies"),
    ],
)
def test_settings_that_do_not_go_with_state_are_refused(settings: dict[str, Any], message: str) -> None:
    given = {"sink": ParquetSink(path="/unused"), **settings}
    sink = given.pop("sink")
    with pytest.raises(FatalError, match=message) as raised:
        refuse_settings(worker_config("http://unused", sink, stateful=True, **given))
    assert raised.value.reason == "InvalidPipeline"
    refuse_settings(worker_config("http://unused", ParquetSink(path="/unused"), stateful=True))
