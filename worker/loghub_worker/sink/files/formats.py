"""The formats of file sinks: how Spark writes them, how many rows a file has, and how files are joined.

Spark writes a batch as one file for each task. They are joined to one file, because one file can become
visible in one step and several cannot.

This module also has, without Spark: the statistics of a Parquet file; the settings of Spark for Parquet that
count where pyarrow writes the files, and the columns that pyarrow writes as Spark does; and the names of
partition folders, such as ``date=2026-01-31``. Schemas are JSON that Spark has written (`StructType.json`),
decoded.

Readers skip files by the statistics (the rows, and the nulls and bounds of each column), so a bound may be
wide but never wrong. They come from the footer that Spark has written; what the footer does not say is left
out.
"""

import datetime
import decimal
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from loghub_worker.sink.batch_sink import TIMES, InvalidSinkError, RowsRejectedError

INDEXED_COLUMNS = 32  # the Delta default; more would only make the log longer
MAX_TEXT = 32  # characters of a bound, the length that other writers use
_LAST_CHARACTER = "\U0010ffff"
_MILLISECOND = datetime.timedelta(milliseconds=1)


def file_statistics(file: Path, *, without_bounds: Collection[str] = ()) -> tuple[int, str]:
    """The number of rows of a file, and its statistics as JSON, without the bounds of some columns. Raises
    `RowsRejectedError` if they show a text that is no valid UTF-8."""
    try:
        return _rows_and_statistics(file, without_bounds)
    except UnicodeDecodeError as error:
        raise RowsRejectedError(
            f"a text is not valid UTF-8 ({error}), so other readers could not read the table: use"
            " make_valid_utf8(column) in the query"
        ) from None


def _rows_and_statistics(file: Path, without_bounds: Collection[str]) -> tuple[int, str]:
    metadata = pq.read_metadata(file)
    rows = int(metadata.num_rows)
    nulls: dict[str, int] = {}
    minimum: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name, column in _columns(metadata):
        statistics_of_groups = [
            metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)
        ]
        if any(one is None or not one.has_null_count for one in statistics_of_groups):
            continue
        nulls[name] = sum(one.null_count for one in statistics_of_groups)
        with_values = [
            one for one in statistics_of_groups if one.null_count < one.num_values + one.null_count
        ]
        if name in without_bounds or not with_values or not all(one.has_min_max for one in with_values):
            continue
        try:
            low, high = (
                _bound(min(one.min for one in with_values), up=False),
                _bound(max(one.max for one in with_values), up=True),
            )
        except OverflowError:  # of a date or time before the year 1 or after 9999, which Python does not have
            continue
        if low is not None and high is not None:
            minimum[name], greatest[name] = low, high
    statistics = {"numRecords": rows, "minValues": minimum, "maxValues": greatest, "nullCount": nulls}
    return rows, msgspec.json.encode(statistics).decode()


def _columns(metadata: Any) -> Iterator[tuple[str, int]]:
    """The names and numbers of the first columns that have one value for each row."""
    schema = metadata.schema
    for number in range(min(len(schema), INDEXED_COLUMNS)):
        column = schema.column(number)
        # A path with a dot is a field of a nested column, or a top-level name with a dot: both are left out.
        if column.path == column.name and "." not in column.path and not column.max_repetition_level:
            yield column.name, number


def _bound(value: Any, *, up: bool) -> Any:
    """A bound as JSON; None if there is none that is surely right."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) and value != 0 else None  # 0.0 and -0.0 are bounds of each other
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return _text(value, up=up)
    if isinstance(value, datetime.datetime):
        return _time(value, up=up)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return msgspec.Raw(format(value, "f").encode()) if isinstance(value, decimal.Decimal) else None


def _text(value: str, *, up: bool) -> str | None:
    if len(value) <= MAX_TEXT:
        return value
    if not up:
        return value[:MAX_TEXT]
    return None if value[MAX_TEXT] == _LAST_CHARACTER else value[:MAX_TEXT] + _LAST_CHARACTER


def _time(value: datetime.datetime, *, up: bool) -> str | None:
    """The time to the millisecond, the precision that other writers use."""
    if value.tzinfo is None:
        return None
    utc = value.astimezone(datetime.UTC)
    utc -= datetime.timedelta(microseconds=utc.microsecond % 1000)
    if up and utc != value:
        utc += _MILLISECOND
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03}Z"


CODEC, TIMESTAMPS = "spark.sql.parquet.compression.codec", "spark.sql.parquet.outputTimestampType"
INT96, MICROS, MILLIS = "INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"
# Spark's names, and pyarrow's. Spark's lz4 is a form of Hadoop's, which pyarrow does not write.
_CODECS = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "brotli": "brotli",
    "lz4_raw": "lz4",
    "lz4raw": "lz4",
}
PARQUET_TYPES = frozenset(
    {
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)


def codec(setting: str) -> str:
    """The compression as pyarrow calls it. Raises `InvalidSinkError`."""
    name = _CODECS.get(setting.lower())
    if name is None:
        raise InvalidSinkError(
            f"executors write no Parquet files for a bucket with {CODEC} {setting!r}: use one of"
            f" {', '.join(_CODECS)}"
        )
    return name


def timestamps(schema: Mapping[str, Any], setting: str) -> str:
    """How the timestamps of a schema are written: by the setting, and timestamps without a time zone always
    in microseconds. Raises `InvalidSinkError` if the columns would differ."""
    kinds = {kind for field in schema["fields"] for kind in _kinds(field["type"])}
    if "timestamp_ntz" not in kinds:
        return setting
    if "timestamp" in kinds and setting != MICROS:
        raise InvalidSinkError(
            "the query has columns of type timestamp and of type timestamp_ntz, which executors write to a"
            f" bucket only if {TIMESTAMPS} in spec.spark.conf is {MICROS}"
        )
    return MICROS


def require_columns(schema: Mapping[str, Any]) -> None:
    """Raises `InvalidSinkError` for columns that pyarrow would write in another way than Spark, or that Spark
    refuses."""
    problems = []
    for field in schema["fields"]:
        bad = next((kind for kind in _kinds(field["type"]) if not _is_written(kind)), None)
        if bad is not None:
            problems.append(f"{field['name']!r} has the type {bad}; use CAST")
    problems += repeated_names(schema)
    if problems:
        raise InvalidSinkError(f"executors cannot write these columns to a bucket: {'; '.join(problems)}")


def repeated_names(schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with names that Spark, which ignores case, could not tell apart."""
    counted = Counter(str(field["name"]).lower() for field in schema["fields"])
    return [f"{name!r} occurs more than once" for name, count in counted.items() if count > 1]


def _is_written(kind: str) -> bool:
    return kind in PARQUET_TYPES or kind.startswith("decimal(")


def _kinds(kind: Any) -> Iterator[str]:
    """The types of which a type consists."""
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "struct":
        if not kind["fields"]:
            yield "struct<>"
        for field in kind["fields"]:
            yield from _kinds(field["type"])
    elif kind["type"] == "map":
        yield from _kinds(kind["keyType"])
        yield from _kinds(kind["valueType"])
    elif kind["type"] == "array":
        yield from _kinds(kind["elementType"])
    else:
        yield str(kind["type"])


# The names of folders are texts; of other types Spark writes texts that readers do not agree about.
TYPES = frozenset({"string", "long", "integer", "short", "byte", "date", "boolean"})

MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 4095  # of a path in a file system of Linux
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Spark's name of the folder of a null, or of an empty text
# Spark's words for a folder that it cannot make, for whatever reason.
_NO_FOLDER = re.compile(r"Mkdirs failed to create (?:file:)?(.*) \(exists=", re.DOTALL)
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{[\]^]""")  # by Spark


def partitioning(fields: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
    """Raises `InvalidSinkError` unless these columns can be the partition columns. `fields` are the fields of
    the query's `StructType.json`."""
    types = {field["name"]: field["type"] for field in fields}
    for name in partition_by:
        if name not in types:
            raise InvalidSinkError(f"partitionBy names {name!r}, which the query does not return")
        if isinstance(types[name], str) and types[name] in TYPES:
            continue
        kind = types[name] if isinstance(types[name], str) else types[name]["type"]
        raise InvalidSinkError(
            f"partitionBy names {name!r} of type {kind}; a partition column is one of"
            f" {', '.join(sorted(TYPES))}"
        )
    if partition_by and len(partition_by) == len(fields):
        raise InvalidSinkError("partitionBy names every column of the query; leave one for the rows")


def partition_folder(partition_by: Sequence[str], values: Sequence[str | None]) -> str:
    """Spark's name of the folder of the rows with these values."""
    texts = (_escaped(value) if value else NULL_PARTITION for value in values)
    return "/".join(f"{_escaped(column)}={text}" for column, text in zip(partition_by, texts, strict=True))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def obstacle(text: str, partition_by: Sequence[str]) -> str | None:
    """Why no folder can have the values of partition columns that this message of Spark's is about; None if
    it is about something else."""
    match = _NO_FOLDER.match(text)
    return None if match is None or not partition_by else folder_obstacle(match[1], partition_by)


def folder_obstacle(path: str, partition_by: Sequence[str]) -> str | None:
    """Why there can be no folder of a partition with this path; None if there can."""
    for column in partition_by:
        for name in path.split("/"):
            if not name.startswith(f"{_escaped(column)}="):
                continue
            if "\0" in name:
                return f"a value of {column!r} with the character U+0000: replace it in the query"
            if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
                return (
                    f"a value of {column!r} that is too long for the name of a folder, {name[:60]}..: it may"
                    f" have {MAX_NAME_BYTES} bytes with the column's name, and a special character counts"
                    " as three; shorten it in the query, or choose another column for partitionBy"
                )
    if len(path.encode(errors="replace")) > MAX_PATH_BYTES:
        return (
            f"a path of more than {MAX_PATH_BYTES} bytes: the values of the columns in partitionBy are"
            " too long"
        )
    return None


def require_few_partitions(partitions: int, partition_by: Sequence[str], *, maximum: int) -> None:
    """Raises `RowsRejectedError` if a batch has too many of them."""
    if partitions > maximum:
        raise RowsRejectedError(
            f"the rows have {partitions} different values of {', '.join(partition_by)}, and a micro-batch may"
            f" have at most {maximum}: choose columns with fewer values for partitionBy, such as a date"
        )


# The defaults of parquet-hadoop; row groups are copied whole, whatever their size.
ROW_GROUP_BYTES, MAX_PADDING_BYTES = 128 << 20, 8 << 20


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One file format. ``join`` writes the rows of several files of one schema to a new file, in order."""

    name: str
    options: Mapping[str, str]
    count_rows: Callable[[Path], int]
    join: Callable[[SparkSession, Sequence[Path], Path], None]


def _parquet_rows(file: Path) -> int:
    return int(pq.read_metadata(file).num_rows)


def _join_parquet(spark: SparkSession, files: Sequence[Path], target: Path) -> None:
    """Copy the row groups as they are, so that neither types nor compression change. Only Parquet's own
    library, which is part of Spark, can do that: pyarrow would decode and encode again, and its types are
    not Spark's."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    parquet = jvm.org.apache.parquet.hadoop

    def path(file: Path) -> Any:  # from a URI, since a text is not decoded, and partitions have a % in them
        return jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file.as_uri()))

    inputs = [parquet.util.HadoopInputFile.fromPath(path(file), conf) for file in files]
    reader = parquet.ParquetFileReader.open(inputs[0])
    try:
        metadata = reader.getFooter().getFileMetaData()
    finally:
        reader.close()
    output = parquet.util.HadoopOutputFile.fromPath(path(target), conf)
    mode = parquet.ParquetFileWriter.Mode.CREATE
    writer = parquet.ParquetFileWriter(output, metadata.getSchema(), mode, ROW_GROUP_BYTES, MAX_PADDING_BYTES)
    writer.start()
    for file in inputs:
        writer.appendFile(file)
    writer.end(metadata.getKeyValueMetaData())


def _lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(part.count(b"\n") for part in iter(lambda: content.read(1 << 20), b""))


def _join_lines(_spark: SparkSession, files: Sequence[Path], target: Path) -> None:
    with target.open("xb") as joined:
        for file in files:
            with file.open("rb") as content:
                shutil.copyfileobj(content, joined, 1 << 20)


PARQUET = FileFormat("parquet", {}, _parquet_rows, _join_parquet)
# Uncompressed whatever Hadoop's settings are, because the lines are counted.
JSON = FileFormat(
    "json", {"compression": "none", "lineSep": "\n", "encoding": "UTF-8", **TIMES}, _lines, _join_lines
)
