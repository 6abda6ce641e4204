"""The user's part of a batch: an SQL query or a Python function that turns logs into rows for the sink.

It is checked once, with no logs, before the worker joins its group. An error of the user's code is reported
with its own message and the place in the user's file, because what Spark and the worker do around it does not
help the user.
"""

import importlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import py4j
import pyspark
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame, SparkSession

import loghub_worker
from loghub.worker_contract import CopyPipeline, Pipeline, PythonPipeline, SqlPipeline
from loghub_worker.query.spark_session import FatalError, invalid
from loghub_worker.query.used_columns import VIEW, as_view, used_columns
from loghub_worker.source.arrow_decoder import EVERYTHING, SCHEMA, Selection
from loghub_worker.source.datasource import LogHubDataSource
from loghub_worker.spark_errors import SPARK_ERRORS, first_lines

# Spark's Python processes would import a file with one of these names instead of a module that they need.
RESERVED_MODULES = sys.stdlib_module_names | {"loghub", "loghub_worker", "py4j", "pyarrow", "pyspark"}
_OWN_PACKAGES = tuple(
    str(Path(file).parent) for file in (loghub_worker.__file__, py4j.__file__ or "", pyspark.__file__ or "")
)


# Spark's functions over Arrow batches require pandas too, except for `arrow_udf`.
WITHOUT_PANDAS = (
    "; this worker has no pandas: use an image from the target worker-pandas of the Dockerfile and set it as"
    " worker.image, or without a cluster install the extra `pandas`"
)


class PipelineError(Exception):
    """The user's function raised an error, or returned no DataFrame; the message is the function's own."""


class Transform(Protocol):
    """Turns the logs of a batch into the rows for the sink."""

    def __call__(self, logs: DataFrame) -> DataFrame:
        """The rows, which may be computed later."""

    def check(self, empty: DataFrame) -> DataFrame:
        """The rows of no logs. Raises `FatalError` ``InvalidPipeline`` for an error that retries do not
        resolve."""

    @property
    def selection(self) -> Selection:
        """What it needs of the logs. Known once it was checked."""


class SqlTransform:
    """A query over the view `logs`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.selection = EVERYTHING

    def __call__(self, logs: DataFrame) -> DataFrame:
        view = logs if logs.columns == SCHEMA.names else as_view(logs, self.selection)
        view.createOrReplaceTempView(VIEW)
        return logs.sparkSession.sql(self._text)

    def check(self, empty: DataFrame) -> DataFrame:
        try:
            # Only a query is allowed: the check itself would execute a statement, and so would each batch.
            empty.sparkSession._jsparkSession.sessionState().sqlParser().parseQuery(self._text)
            rows = self(empty)
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
        # The function may persist its logs and cannot release them: the rows are computed after it returns.
        self._previous: DataFrame | None = None

    def __call__(self, logs: DataFrame) -> DataFrame:
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
            return self(empty)
        except PipelineError as error:
            raise FatalError("InvalidPipeline", str(error)) from error
        except SPARK_ERRORS as error:
            raise FatalError("InvalidPipeline", self._message(error)) from error

    def _message(self, error: BaseException) -> str:
        return f"{self._name}: {user_message(error, self._code)}"


def place_code(pipeline: Pipeline, scratch: Path) -> Path | None:
    """The folder with the user's modules, or None if none are outside the image. Call this before Spark
    starts, because Spark's Python processes import from the folder too. Raises `FatalError`
    ``InvalidPipeline``."""
    if not isinstance(pipeline, PythonPipeline) or not (pipeline.files or pipeline.folder):
        return None
    code = Path(pipeline.folder) if pipeline.folder is not None else scratch
    if pipeline.files:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for name, text in pipeline.files.items():
            (scratch / Path(name).name).write_text(text, encoding="utf-8")
    if not code.is_dir():
        raise FatalError(
            "InvalidPipeline", f"the folder {code} with the code of {pipeline.function} does not exist"
        )
    try:
        hiding = sorted(path.name for path in code.iterdir() if _hides_a_module(path))
    except OSError as error:
        raise FatalError(
            "InvalidPipeline", f"the code of {pipeline.function} cannot be read: {error}"
        ) from error
    if hiding:
        raise FatalError(
            "InvalidPipeline",
            f"{hiding[0]} would hide a module with the same name that the worker needs: rename it",
        )
    return code


def _hides_a_module(path: Path) -> bool:
    # `os.path.exists` is False in a folder without permission, as in lost+found in a volume's root.
    is_module = path.suffix == ".py" or os.path.exists(path / "__init__.py")
    return is_module and path.stem in RESERVED_MODULES


def make_transform(pipeline: Pipeline, code: Path | None) -> Transform:
    """The transform of a batch. It imports the user's module, so Spark must have started. Raises `FatalError`
    ``InvalidPipeline``."""
    if isinstance(pipeline, SqlPipeline):
        return SqlTransform(pipeline.text)
    if isinstance(pipeline, CopyPipeline):
        return CopyTransform()
    return PythonTransform(pipeline.function, _import_function(pipeline.function, code), code)


def empty_logs(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of logs."""
    return spark.createDataFrame([], LogHubDataSource({}).schema())


def _import_function(name: str, code: Path | None) -> Callable[[DataFrame], object]:
    module_name, _, function_name = name.partition(":")
    if code is not None:
        sys.path.insert(0, str(code))
        importlib.invalidate_caches()
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:
        raise FatalError("InvalidPipeline", f"{name}: {user_message(error, code)}") from error
    if not callable(function):
        raise FatalError(
            "InvalidPipeline", f"{name}: {function_name} is not a function but {type(function).__name__}"
        )
    checked: Callable[[DataFrame], object] = function
    return checked


def user_message(error: BaseException, code: Path | None) -> str:
    """The last line of the user's own traceback, and where in the user's files it was raised."""
    message = first_lines(error) or "no message"
    advice = WITHOUT_PANDAS if _lacks_pandas(error) else ""
    return f"{type(error).__name__}: {message}{_location(error, code)}{advice}"


def _lacks_pandas(error: BaseException) -> bool:
    if isinstance(error, PySparkImportError):
        package = (error.getMessageParameters() or {}).get("package_name")
        return (error.getCondition(), package) == ("PACKAGE_NOT_INSTALLED", "Pandas")
    return isinstance(error, ModuleNotFoundError) and error.name == "pandas"


def _location(error: BaseException, code: Path | None) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_user_code(f.filename)]
    inside = [f for f in frames if code is not None and Path(f.filename).is_relative_to(code)]
    if not frames:
        return ""
    last = (inside or frames)[-1]
    file = Path(last.filename)
    shown = file.relative_to(code) if code is not None and inside else file.name
    return f" ({shown}:{last.lineno}, in {last.name})"


def _is_user_code(filename: str) -> bool:
    return not filename.startswith(("<frozen ", *_OWN_PACKAGES)) and Path(filename) != Path(
        importlib.__file__
    )
