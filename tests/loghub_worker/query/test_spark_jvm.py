"""Which JVM a worker starts, before Spark has seen its query, and with which options."""

from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import LogstoreSink, ParquetSink, Sink
from loghub.contract.worker import PythonPipeline, SqlPipeline
from loghub_worker.query.engine import is_likely_short
from loghub_worker.query.spark_jvm import FIRST_COMPILER, SECOND_COMPILER_LATER, java_options
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.query.test_arrow_query import APART, QUERIES, whole
from tests.loghub_worker.support import SOURCE, worker_config

FILES, LOGSTORE_SINK = ParquetSink(path="/out"), LogstoreSink(project="p", logstore="l", keep_order=False)


def expected(folder: Path, sink: Sink = FILES, **changes: Any) -> bool:
    config = worker_config("http://x", sink, spark_conf={}, **changes)
    return is_likely_short(config, make_sink(config, consumer="w-0", source=SOURCE, scratch=folder))


def test_arrow_is_expected_for_the_queries_of_its_list(tmp_path: Path) -> None:
    """A CAST goes Spark's way if it might be skipped, and a minus sign is rarely one of a constant."""
    sqls = {
        name: whole(name) if name in APART else f"SELECT {sql} FROM logs" for name, sql in QUERIES.items()
    }
    missed = {name for name, sql in sqls.items() if not expected(tmp_path, pipeline=SqlPipeline(text=sql))}
    assert {name.partition(" from ")[0] for name in missed} == {"literal", "numbers", "substring"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT regexp_extract(contents['line'], '^[a-z]+') AS method FROM logs",
        "SELECT * FROM logs WHERE contents['line'] RLIKE 'x'",
        "SELECT contents['a'] + 1 AS b FROM logs",
        "SELECT l.*, h.name FROM logs l JOIN parquet.`/hosts` h ON l.`__source__` = h.host",
        "SELECT explode(contents) FROM logs",
        "SELECT current_timestamp() AS t FROM logs",
        "SELECT * FROM logs WHERE __topic__ = '' AND CAST(contents['n'] AS INT) > 1",
    ],
)
def test_spark_is_expected_for_other_queries(text: str, tmp_path: Path) -> None:
    assert not expected(tmp_path, pipeline=SqlPipeline(text=text))


def test_spark_is_expected_for_whatever_else_obstructs_arrow(tmp_path: Path) -> None:
    assert expected(tmp_path)
    assert not expected(tmp_path, LOGSTORE_SINK)
    assert not expected(tmp_path, engine="Spark")
    assert not expected(tmp_path, pipeline=PythonPipeline(function="a:b"))


@pytest.mark.parametrize(
    "text", ["SELECT size(contents) FROM logs", "SELECT 'a' || \"size(\" AS `size(` FROM logs"]
)
def test_what_is_in_quotes_is_no_function(text: str, tmp_path: Path) -> None:
    assert expected(tmp_path, pipeline=SqlPipeline(text=text)) == ("||" in text)


def test_a_jvm_that_only_plans_has_one_compiler(tmp_path: Path) -> None:
    plans, computes = (java_options(tmp_path, None, only_plans=only_plans) for only_plans in (True, False))
    assert all(option in plans and option not in computes for option in FIRST_COMPILER)
    assert all(option in computes and option not in plans for option in SECOND_COMPILER_LATER)
