"""The user's part of a batch: an SQL query or a Python function that turns logs into rows for the sink.

It is checked once, with no logs, before the worker joins its group. Each batch must have the columns that it
returned then (`loghub_worker.query.checked_columns`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from loghub.worker_contract import CopyPipeline, Pipeline, PythonPipeline, SqlPipeline
from loghub_worker.failure.outage import decisive
from loghub_worker.fatal_error import FatalError
from loghub_worker.query.checked_columns import Columns, difference
from loghub_worker.query.spark_session import invalid
from loghub_worker.query.used_columns import VIEW, as_view, used_columns
from loghub_worker.source.arrow_decoder import EVERYTHING, SCHEMA, Selection
from loghub_worker.source.datasource import LogHubDataSource
from loghub_worker.spark_errors import SPARK_ERRORS
from loghub_worker.user_code import import_named, user_message


class PipelineError(Exception):
    """The user's function raised an error, or returned no DataFrame, or the columns of a batch are not those
    that were checked."""


class Transform(Protocol):
    """Turns the logs of a batch into the rows for the sink."""

    def __call__(self, logs: DataFrame) -> DataFrame:
        """The rows, which may be computed later. Raises `PipelineError` if they have other columns than those
        that were checked."""

    def check(self, empty: DataFrame) -> DataFrame:
        """The rows of no logs. Raises `FatalError` ``InvalidPipeline`` for an error that retries do not
        resolve."""

    @property
    def selection(self) -> Selection:
        """What it needs of the logs. Known once it was checked."""


class _Checked:
    """The columns that the pipeline returned when it was checked; any before that."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._columns: Columns | None = None

    def note(self, rows: DataFrame) -> DataFrame:
        self._columns = rows.dtypes
        return rows

    def require(self, rows: DataFrame) -> DataFrame:
        found = None if self._columns is None else difference(self._columns, rows.dtypes)
        if found is not None:
            raise PipelineError(
                f"{self._name} returned other columns than with no logs, with which it was checked: {found}."
                " Name the columns and their types, so that they do not depend on the logs, or on a table"
                " that changes; for another set of columns, restart the workers"
            )
        return rows


class SqlTransform:
    """A query over the view `logs`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._checked = _Checked("the query")
        self.selection = EVERYTHING

    def __call__(self, logs: DataFrame) -> DataFrame:
        return self._checked.require(self._rows(logs))

    def _rows(self, logs: DataFrame) -> DataFrame:
        view = logs if logs.columns == SCHEMA.names else as_view(logs, self.selection)
        view.createOrReplaceTempView(VIEW)
        return logs.sparkSession.sql(self._text)

    def check(self, empty: DataFrame) -> DataFrame:
        try:
            # Only a query is allowed: the check itself would execute a statement, and so would each batch.
            empty.sparkSession._jsparkSession.sessionState().sqlParser().parseQuery(self._text)
            rows = self._checked.note(self._rows(empty))
            self.selection = used_columns(empty.sparkSession, self._text)
            return rows
        except SPARK_ERRORS as error:
            raise invalid(error) from error


class CopyTransform:
    """No transform: the source copies log groups and yields only their numbers."""

    selection = EVERYTHING

    def __call__(self, logs: DataFrame) -> DataFrame:
        return logs

    def check(self, empty: DataFrame) -> DataFrame:
        return empty


class PythonTransform:
    """A Python function of the user. It may use any column."""

    selection = EVERYTHING

    def __init__(self, name: str, function: Callable[[DataFrame], object], code: Path | None) -> None:
        self._name = name
        self._function = function
        self._code = code
        self._checked = _Checked(name)
        # The function may persist its logs and cannot release them: the rows are computed after it returns.
        self._previous: DataFrame | None = None

    def __call__(self, logs: DataFrame) -> DataFrame:
        return self._checked.require(self._rows(logs))

    def _rows(self, logs: DataFrame) -> DataFrame:
        if self._previous is not None:
            self._previous.unpersist()
        self._previous = logs
        try:
            rows = self._function(logs)
        except SPARK_ERRORS:
            raise  # an error of the batch itself, such as an unreachable endpoint, is recognized by its type
        except (Exception, SystemExit) as error:
            raise PipelineError(self._message(error)) from error
        if not isinstance(rows, DataFrame):
            raise PipelineError(f"{self._name} returned {type(rows).__name__}, not a Spark DataFrame")
        return rows

    def check(self, empty: DataFrame) -> DataFrame:
        try:
            return self._checked.note(self._rows(empty))
        except PipelineError as error:
            raise FatalError("InvalidPipeline", str(error)) from error
        except SPARK_ERRORS as error:
            raise FatalError("InvalidPipeline", self._message(error)) from error

    def _message(self, error: BaseException) -> str:
        return f"{self._name}: {user_message(decisive(error), self._code)}"


def make_transform(pipeline: Pipeline, code: Path | None) -> Transform:
    """The transform of a batch. It imports the user's module, so Spark must have started. Raises `FatalError`
    ``InvalidPipeline``."""
    if isinstance(pipeline, SqlPipeline):
        return SqlTransform(pipeline.text)
    if isinstance(pipeline, CopyPipeline):
        return CopyTransform()
    assert isinstance(pipeline, PythonPipeline)  # a processor runs without Spark
    return PythonTransform(pipeline.function, _import_function(pipeline.function, code), code)


def empty_logs(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of logs."""
    return spark.createDataFrame([], LogHubDataSource({}).schema())


def _import_function(name: str, code: Path | None) -> Callable[[DataFrame], object]:
    function = import_named(name, code)
    if not callable(function):
        _, _, attribute = name.partition(":")
        raise FatalError(
            "InvalidPipeline", f"{name}: {attribute} is not a function but {type(function).__name__}"
        )
    checked: Callable[[DataFrame], object] = function
    return checked
