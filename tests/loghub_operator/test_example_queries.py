"""The pipelines of the examples on a real Spark: they parse access log lines, and let other text through."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_operator.api import parse_resource, resources_in
from loghub_operator.api.documents import documents_in
from loghub_operator.resources.metadata import code_in
from tests.loghub_operator.support.apiserver import ROOT
from tests.loghub_worker.plan_operations import per_batch_operations

pytestmark = pytest.mark.spark

LINES = (
    '192.0.2.1 - bob [10/Oct/2026:13:55:36 -0700] "GET /a/b?c=1 HTTP/1.1" 200 2326 "-" "curl/8"',
    '192.0.2.2 - - [10/Oct/2026:13:55:37 -0700] "POST /x HTTP/1.1" 304 -',
    'any other text: it\'s "quoted" \\ and more',
    "",
)


def _text(value: str) -> str:
    """A raw string of Spark SQL cannot hold its own quote; a plain one can, escaped."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _view() -> str:
    rows = ", ".join(
        f"({number}, map('line', {_text(line)}, 'file', 'f.log', 'pass', '2', 'number', '{number}'))"
        for number, line in enumerate(LINES)
    )
    return f"""
        SELECT timestamp_seconds(0) AS __time__, 0 AS __time_ns__, '' AS __topic__, '' AS __source__,
               map('a', 'b') AS __tags__, contents, 3 AS __shard__, 5L AS __cursor__, n AS __index__
        FROM VALUES {rows}, (99, map('other', 'key')) AS t(n, contents)
    """


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    yield spark
    spark.catalog.dropTempView("logs")


def rows_of(spark: Any, example: str) -> list[dict[str, Any]]:
    (document,) = resources_in((ROOT / "deploy" / "examples" / example).read_text())
    spark.sql(_view()).createOrReplaceTempView("logs")
    rows = [row.asDict() for row in spark.sql(parse_resource(document).spec.pipeline.sql).collect()]
    return sorted(rows, key=lambda row: (row["number"] is None, str(row["number"])))


def test_access_log_parses_what_it_can_and_keeps_every_line(spark: Any) -> None:
    rows = rows_of(spark, "access-log.yaml")
    assert [row["line"] for row in rows] == [*LINES, None]
    assert [(row["file"], row["pass"], row["number"]) for row in rows[:4]] == [
        ("f.log", 2, number) for number in range(4)
    ]
    parsed = [(row["client"], row["method"], row["path"], row["status"], row["bytes"]) for row in rows]
    assert parsed[0] == ("192.0.2.1", "GET", "/a/b?c=1", 200, 2326)
    assert parsed[1] == ("192.0.2.2", "POST", "/x", 304, None)
    assert parsed[2] == parsed[3] == ("", "", "", None, None)


def test_postgresql_writes_the_columns_of_an_access_log(spark: Any) -> None:
    (document,) = resources_in((ROOT / "deploy" / "examples" / "postgresql.yaml").read_text())
    pipeline = parse_resource(document).spec.pipeline
    assert pipeline.sink.postgresql is not None
    assert pipeline.sink.postgresql.ssl_mode == "verify-full"
    spark.sql(_view()).createOrReplaceTempView("logs")
    found = {row["line"]: row.asDict() for row in spark.sql(pipeline.sql).collect()}
    assert found.keys() == {*LINES, None}
    first = found[LINES[0]]
    assert (first["client"], first["path"], first["status"], first["tags"]) == (
        "192.0.2.1", "/a/b?c=1", 200, {"a": "b"},
    )  # fmt: skip


def test_copy_logstore_copies_without_a_query() -> None:
    (document,) = resources_in((ROOT / "deploy" / "examples" / "copy-logstore.yaml").read_text())
    assert parse_resource(document).spec.pipeline.copies


def test_enrich_python_keeps_networks_instead_of_addresses(spark: Any, tmp_path: Path) -> None:
    file = ROOT / "deploy" / "examples" / "enrich-python.yaml"
    (document,) = resources_in(file.read_text())
    group = parse_resource(document)
    (config_map,) = documents_in(file.read_text(), "v1", "ConfigMap")
    assert code_in(group, config_map).error == ""
    (tmp_path / "enrich.py").write_text(config_map["data"]["enrich.py"])
    run = runpy.run_path(str(tmp_path / "enrich.py"))["run"]
    rows = {row["path"]: row.asDict() for row in run(spark.sql(_view())).collect()}
    retained = {path: (row["network"], row["method"], row["status"]) for path, row in rows.items()}
    assert retained == {
        "/a/b?c=1": ("192.0.2.0/24", "GET", 200),
        "/x": ("192.0.2.0/24", "POST", 304),
        "": (None, "", None),
        None: (None, None, None),
    }


def test_stateful_keeps_the_first_copy_of_an_entry(spark: Any, tmp_path: Path) -> None:
    file = ROOT / "deploy" / "examples" / "stateful.yaml"
    (document,) = resources_in(file.read_text())
    group = parse_resource(document)
    assert group.spec.pipeline.stateful
    (config_map,) = documents_in(file.read_text(), "v1", "ConfigMap")
    assert code_in(group, config_map).error == ""
    (tmp_path / "entries.py").write_text(config_map["data"]["entries.py"])
    run = runpy.run_path(str(tmp_path / "entries.py"))["run"]
    plan = run(spark.sql(_view()))._jdf.queryExecution().analyzed().toString()
    assert "DeduplicateWithinWatermark [id" in plan


def test_requests_per_minute_are_counted_by_path(spark: Any) -> None:
    (document,) = resources_in((ROOT / "deploy" / "examples" / "requests-per-minute.yaml").read_text())
    pipeline = parse_resource(document).spec.pipeline
    assert pipeline.stateful
    spark.sql(_view()).createOrReplaceTempView("logs")
    rows = {row["path"]: row["requests"] for row in spark.sql(pipeline.sql).collect()}
    assert rows == {"/a/b?c=1": 1, "/x": 1, "": 2, None: 1}


def test_spark_cluster_finds_browsers_after_the_logs_were_spread_over_the_cores(
    spark: Any, tmp_path: Path
) -> None:
    file = ROOT / "deploy" / "examples" / "spark-cluster.yaml"
    (document,) = resources_in(file.read_text())
    group = parse_resource(document)
    assert group.spec.spark.master.startswith("spark://")
    (config_map,) = documents_in(file.read_text(), "v1", "ConfigMap")
    assert code_in(group, config_map).error == ""
    (tmp_path / "agents.py").write_text(config_map["data"]["agents.py"])
    run = runpy.run_path(str(tmp_path / "agents.py"))["run"]
    line = '192.0.2.1 - - [x] "GET / HTTP/1.1" 200 9 "-" "Mozilla/5.0 (X11) Firefox/140.0"'
    logs = spark.sql(_view())
    assert run(logs).rdd.getNumPartitions() == group.spec.spark.cores
    assert {row["browser"] for row in run(logs).collect()} == {"curl", "other"}
    logs = spark.createDataFrame([(1, {"line": line})], "__time__ INT, contents MAP<STRING, STRING>")
    assert [(row["browser"], row["line"]) for row in run(logs).collect()] == [("Firefox", line)]


def test_spark_on_kubernetes_spreads_the_logs_over_the_cores_of_its_executors(spark: Any) -> None:
    file = ROOT / "deploy" / "examples" / "spark-on-kubernetes.yaml"
    (document,) = resources_in(file.read_text())
    spec = parse_resource(document).spec
    assert spec.spark.makes_pods
    spark.sql(_view()).createOrReplaceTempView("logs")
    result = spark.sql(spec.pipeline.sql)
    assert per_batch_operations(result) == []
    assert result.rdd.getNumPartitions() == spec.spark.cores
    found = {row["client"]: row for row in result.collect()}
    assert (found["192.0.2.1"]["path"], found["192.0.2.1"]["status"]) == ("/a/b?c=1", "200")


def test_every_document_of_an_example_has_a_kind() -> None:
    for file in (ROOT / "deploy" / "examples").glob("*.yaml"):
        assert all(one["kind"] for one in yaml.safe_load_all(file.read_text()))
