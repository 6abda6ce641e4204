"""Which of Spark's settings for Parquet count where pyarrow writes the files, and which columns it writes as
Spark does. Pure.

Schemas are JSON as Spark writes it (`StructType.json`), decoded.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from loghub_worker.sink.batch_sink import InvalidSinkError

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
    found = _CODECS.get(setting.lower())
    if found is None:
        raise InvalidSinkError(
            f"executors write no Parquet files for a bucket with {CODEC} {setting!r}: use one of"
            f" {', '.join(_CODECS)}"
        )
    return found


def timestamps(schema: Mapping[str, Any], setting: str) -> str:
    """How the timestamps of a schema are written: as the setting says, and those without a time zone always
    in microseconds. Raises `InvalidSinkError` if that is not the same for all."""
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
    counted = Counter(str(field["name"]).lower() for field in schema["fields"])
    problems += [f"{name!r} occurs more than once" for name, count in counted.items() if count > 1]
    if problems:
        raise InvalidSinkError(f"executors cannot write these columns to a bucket: {'; '.join(problems)}")


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
