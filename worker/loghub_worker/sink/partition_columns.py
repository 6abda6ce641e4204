"""Columns whose values are the folders that the files of a sink are in, such as ``date=2026-01-31``. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from loghub_worker.sink.batch_sink import InvalidSinkError

# The names of folders are texts; of other types Spark writes texts that readers do not agree about.
TYPES = frozenset({"string", "long", "integer", "short", "byte", "date", "boolean"})


def partitioning(fields: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
    """Raises `InvalidSinkError` unless these columns can be the partition columns. `fields` are those of the
    query, as in `StructType.json`."""
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
