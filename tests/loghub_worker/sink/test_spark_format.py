"""The sink of any format, with formats that pyspark has and with a real database: Derby, in Spark's JVM."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import SparkSink
from loghub_consumer.failure.policy import Cause
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.sink import spark_format
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles
from loghub_worker.sink.spark_format import REDACT_OPTIONS, RejectedRowsError, SparkFormat, masked
from tests.loghub_worker.sink.commit_log_child import date_back
from tests.ports import free_ports

pytestmark = pytest.mark.spark
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(20).selectExpr("CAST(id AS INT) AS id", "concat('ü ', id) AS line").repartition(2)


def sink(name: str, credentials: CredentialFiles = NO_CREDENTIALS, **options: str) -> SparkFormat:
    return SparkFormat(SparkSink(format=name, options=options), credentials)


def secret(folder: Path, **values: str) -> CredentialFiles:
    folder.mkdir(exist_ok=True)
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    return CredentialFiles(folder)


@pytest.mark.parametrize("name", ["csv", "orc"])
def test_each_batch_is_added_to_the_rows_before(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, name: str
) -> None:
    target = sink(name, path=str(tmp_path / "out"))
    target.check(rows.limit(0))
    assert [target.write(rows, batch) for batch in "ab"] == [20, 20]
    read = spark.read.format(name).schema(rows.schema).load(str(tmp_path / "out"))
    assert sorted(map(tuple, read.collect())) == sorted(2 * list(map(tuple, rows.collect())))


WRITERS, BATCHES, ROWS = 2, 2, 4_000


def test_workers_that_write_into_one_folder_take_nothing_from_each_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop's committer would remove the temporary files of all others at the end of each batch, and a task
    whose files are gone ends without an error."""

    def write(session: SparkSession, writer: int) -> None:
        for batch in range(BATCHES):
            first = (writer * BATCHES + batch) * ROWS
            rows = session.range(first, first + ROWS, 1, 4).selectExpr("CAST(id AS STRING) AS id")
            assert sink("orc", path=str(tmp_path / "out")).write(rows, "b") == ROWS

    of_others = tmp_path / "out/_temporary"
    for name, age_s in {"7": 2 * 86_400.0, "8": 3600.0}.items():
        (of_others / name).mkdir(parents=True)
        date_back(of_others / name, age_s)
    sessions = [spark.newSession() for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, sessions, range(WRITERS)))
    ids = spark.read.format("orc").load(str(tmp_path / "out")).select("id")
    assert ids.count() == ids.distinct().count() == WRITERS * BATCHES * ROWS
    assert [path.name for path in of_others.iterdir()] == ["8"], "what a killed worker left goes after a day"


def test_options_of_the_secret_override_the_others(rows: DataFrame, tmp_path: Path) -> None:
    credentials = secret(tmp_path / "secret", path=str(tmp_path / "right"))
    assert sink("csv", credentials, path=str(tmp_path / "wrong"), header="true").write(rows, "b") == 20
    assert not (tmp_path / "wrong").exists()
    texts = [file.read_text() for file in (tmp_path / "right").glob("*.csv")]
    assert {text.splitlines()[0] for text in texts} == {"id,line"}


def test_rows_are_in_a_database_and_a_later_password_is_used(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    options = {"url": url, "dbtable": "lines", "driver": DERBY}
    credentials = secret(tmp_path / "secret", user="me", password="first")
    target = sink("jdbc", credentials, **options)
    target.check(rows.limit(0))
    assert target.write(rows, "b") == 20
    secret(tmp_path / "secret", password="second")
    assert target.write(rows, "c") == 20  # Derby accepts every password
    read = spark.read.format("jdbc").options(**options, user="me", password="x").load()
    assert read.count() == 40


def test_a_row_that_the_target_refuses_is_of_its_log_group(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    options = {"url": f"jdbc:derby:{tmp_path}/db;create=true", "dbtable": "lines", "driver": DERBY}
    target = sink("jdbc", **options, createTableColumnTypes="line VARCHAR(8)")
    target.check(rows.limit(0))
    with pytest.raises(Exception, match="truncation") as caught:
        target.write(rows.selectExpr("id", "repeat(line, 9) AS line"), "b")
    assert not is_outage(caught.value)
    assert "truncation" in failure_of(caught.value).message


def test_a_format_without_its_jars_names_the_image(rows: DataFrame) -> None:
    with pytest.raises(InvalidSinkError, match=r"no format 'iceberg'.*worker\.image"):
        sink("iceberg").check(rows.limit(0))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("csv", {}, "path"),
        ("jdbc", {"url": "jdbc:nothing:x", "dbtable": "t"}, "No suitable driver"),
        ("jdbc", {"url": "jdbc:derby:memory:x", "dbtable": "t", "driver": "a.B"}, "a.B"),
    ],
)
def test_wrong_options_are_found_without_rows(
    rows: DataFrame, name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSinkError, match=message):
        sink(name, **options).check(rows.limit(0))


def test_a_target_that_does_not_answer_is_unavailable(rows: DataFrame) -> None:
    (free,) = free_ports(1)
    options = {"url": f"jdbc:hive2://127.0.0.1:{free}/x", "dbtable": "t"}
    target = sink("jdbc", **options, driver="org.apache.hive.jdbc.HiveDriver")
    with pytest.raises(ConnectionError, match="Could not open client transport"):
        target.write(rows, "b")


def test_a_credential_in_an_error_is_masked(rows: DataFrame, tmp_path: Path) -> None:
    target = sink("csv", secret(tmp_path / "secret", compression="hidden"), path=str(tmp_path / "out"))
    with pytest.raises(RejectedRowsError) as caught:
        target.write(rows, "b")
    with pytest.raises(InvalidSinkError) as invalid:
        target.check(rows.limit(0))
    shown = f"{failure_of(caught.value).message} {invalid.value} {caught.value.__cause__}"
    assert "***" in shown
    assert "hidden" not in shown
    assert masked("a b a", ["a", ""]) == "*** b ***"


def test_options_are_in_no_plan(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """The plan of a write, as the log and a user interface show it."""
    spark.conf.set(REDACT_OPTIONS, "nothing")
    sink("csv", secret(tmp_path / "secret", anything="hidden"), path=str(tmp_path / "o")).write(rows, "b")
    options: Any = spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
    options.put("anything", "hidden")
    conf = spark._jsparkSession.sessionState().conf()
    scala = spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(options)  # type: ignore[union-attr]
    seq = spark._jvm.scala.collection.immutable.Map  # type: ignore[union-attr]
    assert "hidden" not in conf.redactOptions(getattr(seq, "from")(scala)).toString()


def test_a_query_that_fails_is_not_an_error_of_the_sink(rows: DataFrame, tmp_path: Path) -> None:
    failing = rows.selectExpr("assert_true(id < 3, 'three') AS x")
    with pytest.raises(PySparkException) as caught:
        sink("csv", path=str(tmp_path / "o")).write(failing, "b")
    assert re.search("three", failure_of(caught.value).message)
    assert not is_outage(caught.value)


def test_a_lock_on_the_table_is_an_outage(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    """A write of no rows needs no lock, and so would not notice it."""
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    target = sink("jdbc", url=url, dbtable="lines", driver=DERBY)
    assert target.write(rows, "a") == 20
    java: Any = spark._jvm
    other = java.java.sql.DriverManager.getConnection(url)
    statement = other.createStatement()
    statement.execute("CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.locks.waitTimeout', '0')")
    other.setAutoCommit(False)
    statement.execute("LOCK TABLE lines IN SHARE MODE")
    with pytest.raises(ConnectionError, match="lock") as caught:
        target.write(rows, "b")
    assert is_outage(caught.value)
    target.check(rows.limit(0))
    other.rollback()
    other.close()
    assert target.write(rows, "b") == 20


def test_what_nobody_can_tell_from_an_outage_is_of_the_rows_once_others_were_written(
    rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sink("csv", path=str(tmp_path / "out"))
    empty = rows.limit(0)
    target.check(empty)

    def fail() -> None:
        def refuse(*_: object) -> int:
            raise PySparkException("the cluster has no room")

        with monkeypatch.context() as patched:
            patched.setattr(spark_format, "append", refuse)
            with pytest.raises(PySparkException):
                target.write(rows, "b")

    for _ in range(2):
        fail()
        with pytest.raises(ConnectionError, match=r"no other rows were written.*has no room") as caught:
            target.check(empty)
        assert failure_of(caught.value).cause is Cause.UNAVAILABLE
    assert target.write(rows, "of another shard") == 20
    target.check(empty)
    fail()
    target.check(empty)
    fail()
    with pytest.raises(ConnectionError):
        target.check(empty)
