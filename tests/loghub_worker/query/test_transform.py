"""The user's query or function: how it is loaded and checked, and which message reports an error in it.

A batch with other columns than were checked fails before the sink gets it, in words that name them.
"""

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.worker import PythonPipeline, SqlPipeline
from loghub_consumer.errors import FatalError
from loghub_consumer.user_code import place_code
from loghub_worker.query.transform import (
    PipelineError,
    PythonTransform,
    SqlTransform,
    Transform,
    difference,
    empty_logs,
    make_transform,
)
from tests.spark_session import CODE

spark_test = pytest.mark.spark


class Module:
    """A user module with a unique name, in the folder from which Spark's processes import."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"users_{uuid.uuid4().hex[:8]}"

    def transform(self, text: str, function: str = "run") -> Transform:
        (self.folder / f"{self.name}.py").write_text(text)
        return make_transform(PythonPipeline(function=f"{self.name}:{function}"), self.folder)


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Any:
    before = list(sys.path)
    folder = request.getfixturevalue("tmp_path")
    if request.node.get_closest_marker("spark"):
        folder = request.getfixturevalue("spark_state") / CODE
    yield Module(folder)
    sys.path[:] = before


def error_message(module: Module, text: str, function: str = "run", logs: Any = None) -> str:
    """The error message for a module, with its name replaced by MODULE."""
    with pytest.raises(FatalError) as raised:
        module.transform(text, function).check(logs)
    assert raised.value.reason == "InvalidPipeline"
    message = raised.value.message
    assert message.startswith(f"{module.name}:{function}")
    assert "loghub_worker" not in message
    assert "Traceback" not in message
    return (
        message.removeprefix(f"{module.name}:{function}")
        .removeprefix(":")
        .lstrip()
        .replace(module.name, "MODULE")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import none_such\n", "ModuleNotFoundError: No module named 'none_such' (MODULE.py:1, in <module>)"),
        ("def run(logs:\n", "SyntaxError: '(' was never closed (MODULE.py, line 1)"),
        ("import sys\n\nsys.exit(3)\n", "SystemExit: 3 (MODULE.py:3, in <module>)"),
        ("def other(logs): pass\n", "AttributeError: module 'MODULE' has no attribute 'run'"),
        ("run = 5\n", "run is not a function but int"),
        ("def run(logs):\n    pass\n", "returned NoneType, not a Spark DataFrame"),
        ("def run():\n    pass\n", "TypeError: run() takes 0 positional arguments but 1 was given"),
        ("def f(x):\n    x['a']\n\ndef run(logs):\n    f({})\n", "KeyError: 'a' (MODULE.py:2, in f)"),
        ("import json\n\ndef run(logs):\n    json.loads('{')\n", "JSONDecodeError: Expecting property name"),
        ("def run(logs):\n    raise SystemExit\n", "SystemExit: no message (MODULE.py:2, in run)"),
    ],
)  # fmt: skip
def test_an_error_is_reported_with_its_place_in_the_users_file(
    module: Module, text: str, message: str
) -> None:
    assert error_message(module, text).startswith(message)


def test_an_error_in_a_library_is_reported_at_the_users_line(module: Module) -> None:
    message = error_message(module, "import json\n\ndef run(logs):\n    json.loads('{')\n")
    assert message.endswith(" (MODULE.py:4, in run)")


def test_a_missing_module_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match=r"nowhere:run: ModuleNotFoundError: No module named 'nowhere'$"):
        make_transform(PythonPipeline(function="nowhere:run"), None)


def test_code_comes_from_files_or_a_folder_or_the_image(tmp_path: Path) -> None:
    files = {"one.py": "A = 1", "data.csv": "x"}
    code = place_code(PythonPipeline(function="one:run", files=files), tmp_path / "scratch")
    assert code is not None
    assert {path.name: path.read_text() for path in code.iterdir()} == files
    folder = PythonPipeline(function="one:run", folder=str(tmp_path))
    assert place_code(folder, tmp_path / "scratch") == tmp_path
    assert place_code(PythonPipeline(function="one:run"), tmp_path / "scratch") is None
    assert place_code(SqlPipeline(text="SELECT 1"), tmp_path / "scratch") is None


def test_files_of_an_earlier_start_are_removed(tmp_path: Path) -> None:
    for files in ({"one.py": "", "two.py": ""}, {"one.py": ""}):
        code = place_code(PythonPipeline(function="one:run", files=files), tmp_path / "scratch")
    assert code is not None
    assert [path.name for path in code.iterdir()] == ["one.py"]


@pytest.mark.parametrize("name", ["types", "loghub", "msgspec", "pyarrow", "lz4", "_cffi_backend"])
def test_a_file_that_would_hide_a_module_is_refused(tmp_path: Path, name: str) -> None:
    files = {"enrich.py": "", f"{name}.py": ""}
    with pytest.raises(FatalError, match=rf"{name}\.py would hide a module with the same name"):
        place_code(PythonPipeline(function="enrich:run", files=files), tmp_path / "scratch")


def test_a_package_hides_a_module_but_a_plain_folder_does_not(tmp_path: Path) -> None:
    (tmp_path / "logging").mkdir()
    pipeline = PythonPipeline(function="enrich:run", folder=str(tmp_path))
    assert place_code(pipeline, tmp_path / "scratch") == tmp_path
    (tmp_path / "logging" / "__init__.py").touch()
    with pytest.raises(FatalError, match="logging would hide a module with the same name"):
        place_code(pipeline, tmp_path / "scratch")


def test_an_unreadable_folder_inside_the_code_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a volume often contains lost+found."""
    (tmp_path / "lost+found").mkdir()
    real = os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if "lost+found/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    pipeline = PythonPipeline(function="enrich:run", folder=str(tmp_path))
    assert place_code(pipeline, tmp_path / "scratch") == tmp_path


def test_an_unreadable_code_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    pipeline = PythonPipeline(function="enrich:run", folder=str(tmp_path))
    with pytest.raises(
        FatalError, match=f"enrich:run cannot be read: .*Permission denied: '{tmp_path}'"
    ) as raised:
        place_code(pipeline, tmp_path / "scratch")
    assert raised.value.reason == "InvalidPipeline"


def test_any_error_of_sparks_parser_is_an_invalid_pipeline() -> None:
    """For example, a parser that runs out of stack has no exception of its own in Python."""

    class Parser:
        def __getattr__(self, name: str) -> Any:
            return self if name == "_jsparkSession" else lambda *_: self

        def parseQuery(self, text: str) -> None:
            raise Py4JError("java.lang.StackOverflowError")

    session: Any = type("Session", (), {"_jsparkSession": Parser()})
    empty: Any = type("Empty", (), {"sparkSession": session})
    with pytest.raises(FatalError, match="StackOverflowError") as raised:
        make_transform(SqlPipeline(text="SELECT 1"), None).check(empty)
    assert raised.value.reason == "InvalidPipeline"


def test_a_missing_code_folder_is_reported(tmp_path: Path) -> None:
    pipeline = PythonPipeline(function="enrich:run", folder=str(tmp_path / "lib"))
    with pytest.raises(FatalError, match=r"the folder .*/lib with the code of enrich:run does not exist"):
        place_code(pipeline, tmp_path / "scratch")


def test_an_error_in_a_batch_is_reported_like_one_in_the_check() -> None:
    def broken(logs: DataFrame) -> DataFrame:
        raise ValueError("not today")

    frame: Any = None
    with pytest.raises(
        PipelineError, match=r"^m:f: ValueError: not today \(test_transform.py:\d+, in broken\)$"
    ):
        PythonTransform("m:f", broken, None)(frame)


UDF = """
from pyspark.sql import functions as F

@F.udf("string")
def shout(text):
    return text.upper()

def run(logs):
    return logs.select(shout(F.col("contents")["line"]).alias("line"), "__shard__")
"""
BROKEN_UDF = UDF.replace("text.upper()", "text.uper()")
LOGS = "SELECT map('line', 'a line') AS contents, 3 AS __shard__"


@spark_test
def test_functions_of_the_users_module_run_in_sparks_processes(module: Module, spark: SparkSession) -> None:
    transform = module.transform(UDF)
    assert transform.check(empty_logs(spark)).columns == ["line", "__shard__"]
    assert [tuple(row) for row in transform(spark.sql(LOGS)).collect()] == [("A LINE", 3)]


COUNTS = """
def run(logs):
    logs.persist()
    return logs.selectExpr(f"{logs.count()} AS logs", "__shard__")
"""


@spark_test
def test_logs_that_a_function_persists_are_released_with_the_next_batch(
    module: Module, spark: SparkSession
) -> None:
    """A function that counts its logs would otherwise read them from the log service twice."""
    transform = module.transform(COUNTS)
    batches = [spark.range(rows).selectExpr("CAST(id AS INT) AS __shard__") for rows in (3, 4)]
    assert transform(batches[0]).count() == 3
    assert batches[0].storageLevel.useMemory
    assert transform(batches[1]).count() == 4
    assert not batches[0].storageLevel.useMemory
    assert batches[1].storageLevel.useMemory


@spark_test
def test_sparks_own_error_is_reported_at_the_users_line(module: Module, spark: SparkSession) -> None:
    text = "def run(logs):\n    return logs.select('nope')\n"
    message = error_message(module, text, logs=empty_logs(spark))
    assert message.startswith("AnalysisException: [UNRESOLVED_COLUMN")
    assert message.endswith(" (MODULE.py:2, in run)")
    assert "JVM" not in message


@spark_test
def test_an_error_in_sparks_own_processes_is_reported_with_its_place(
    module: Module, spark: SparkSession
) -> None:
    from loghub_worker.query.batch_errors import query_error

    rows = module.transform(BROKEN_UDF)(spark.sql(LOGS))
    with pytest.raises(Exception, match="uper") as raised:
        rows.collect()
    error = query_error(raised.value)
    assert error.reason == "PipelineFailed"
    assert (
        error.message
        == f"AttributeError: 'str' object has no attribute 'uper' ({module.name}.py:6, in shout)"
    )


N, USER = ("n", "bigint"), ("user", "string")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([N, USER], None),
        ([("n", "string"), USER], "'n' is string instead of bigint"),
        ([N], "'user' is missing"),
        ([N, ("User", "string")], "'User' is new (string); 'user' is missing"),
        ([N, USER, ("city", "string")], "'city' is new (string)"),
        ([USER, N], "they are user, n instead of n, user"),
        ([N, USER, N], "they are n, user, n instead of n, user"),
        ([(f"c{n}", "int") for n in range(5)] + [N], "'c4' is new (int); and 1 more"),
    ],
)
def test_names_types_and_order_must_be_those_that_were_checked(
    found: list[tuple[str, str]], words: str | None
) -> None:
    said = difference([N, USER], found)
    assert said == words or (words is not None and said is not None and said.endswith(words))


def fields_of_the_first_log(logs: DataFrame) -> DataFrame:
    """As people infer a schema, with a default for no logs."""
    body = logs.select(F.col("contents")["body"].alias("body"))
    first = body.first()
    sample = F.lit('{"n": 1}' if first is None else first["body"])
    schema = logs.sparkSession.range(1).select(F.schema_of_json(sample)).collect()[0][0]
    return body.select(F.from_json("body", schema).alias("j")).select("j.*")


@pytest.mark.spark
def test_a_function_whose_columns_depend_on_the_logs_fails_the_batch(spark: SparkSession) -> None:
    transform = PythonTransform("m:f", fields_of_the_first_log, None)
    transform.check(empty_logs(spark))
    # A column of a constant may not be null, which does not matter.
    fitting, other = (
        spark.sql(f"""SELECT map('body', '{{"n": {value}}}') AS contents""") for value in ("2", '"two"')
    )
    assert [tuple(row) for row in transform(fitting).collect()] == [(2,)]
    with pytest.raises(PipelineError, match=r"^m:f returned other .*: 'n' is string instead of bigint"):
        transform(other)


@pytest.mark.spark
def test_a_query_over_a_table_whose_columns_change_fails_the_batch(spark: SparkSession) -> None:
    transform = SqlTransform("SELECT d.* FROM logs JOIN changing AS d ON __shard__ = d.id")
    spark.sql("SELECT 3 AS id, 'x' AS name").createOrReplaceTempView("changing")
    transform.check(empty_logs(spark))
    logs = empty_logs(spark)
    assert transform(logs).columns == ["id", "name"]
    spark.sql("SELECT 3 AS id, 'x' AS name, 'y' AS city").createOrReplaceTempView("changing")
    with pytest.raises(PipelineError, match=r"^the query returned other .*: 'city' is new \(string\)"):
        transform(logs)
    spark.catalog.dropTempView("changing")
