"""Columns whose values are the folders that the files of a sink are in, such as ``date=2026-01-31``. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError

# The names of folders are texts; of other types Spark writes texts that readers do not agree about.
TYPES = frozenset({"string", "long", "integer", "short", "byte", "date", "boolean"})

LONGEST_NAME_BYTES, LONGEST_PATH_BYTES = 255, 4095  # of a folder in a file system, as Linux has them
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # as Spark names the folder of a null, or of an empty text
# Spark's words for a folder that it cannot make, for whatever reason.
_NO_FOLDER = re.compile(r"Mkdirs failed to create (?:file:)?(.*) \(exists=", re.DOTALL)
_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{[\]^]""")  # by Spark


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


def partition_folder(partition_by: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of the rows with these values, as Spark names it."""
    texts = (_escaped(value) if value else NULL_PARTITION for value in values)
    return "/".join(f"{_escaped(column)}={text}" for column, text in zip(partition_by, texts, strict=True))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def obstacle(text: str, partition_by: Sequence[str]) -> str | None:
    """Why no folder can have the values of partition columns that this message of Spark's is about; None if
    it is about something else."""
    found = _NO_FOLDER.match(text)
    if found is None or not partition_by:
        return None
    names = found[1].split("/")
    for column in partition_by:
        for name in names:
            if not name.startswith(f"{_escaped(column)}="):
                continue
            if "\0" in name:
                return f"a value of {column!r} with the character U+0000: replace it in the query"
            if len(name.encode(errors="replace")) > LONGEST_NAME_BYTES:
                return (
                    f"a value of {column!r} that is too long for the name of a folder, {name[:60]}..: it may"
                    f" have {LONGEST_NAME_BYTES} bytes with the column's name, and a special character counts"
                    " as three; shorten it in the query, or choose another column for partitionBy"
                )
    if len(found[1].encode(errors="replace")) > LONGEST_PATH_BYTES:
        return (
            f"a path of more than {LONGEST_PATH_BYTES} bytes: the values of the columns in partitionBy are"
            " too long"
        )
    return None


def require_few_partitions(partitions: int, partition_by: Sequence[str], *, most: int) -> None:
    """Raises `RowsRejectedError` if a batch has too many of them."""
    if partitions > most:
        raise RowsRejectedError(
            f"the rows have {partitions} different values of {', '.join(partition_by)}, and a micro-batch may"
            f" have at most {most}: choose columns with fewer values for partitionBy, such as a date"
        )
