"""Whether a query's columns fit a Delta table, and whether this sink may write the table at all. Pure.

Schemas are JSON as Spark and Delta both write it (`StructType.json`), decoded. The sink adds Parquet files
that Spark has written, so nothing checks a row against the table's constraints; a table that has some is
refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.parquet_settings import PARQUET_TYPES
from loghub_worker.sink.partition_columns import partitioning

Field = Mapping[str, Any]

# Delta has no other types without a table feature, and Parquet files of Spark store these in the same way.
_TYPES = PARQUET_TYPES - {"timestamp_ntz"}
_FORBIDDEN_IN_NAMES = frozenset(" ,;{}()\n\t=")
# Table features that ask nothing of a writer that only adds files. Those that ask something only if a column
# or property uses them are here too: `_demands` finds the use.
_FEATURES = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns",
        "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint",
        "vacuumProtocolCheck", "domainMetadata", "clustering", "allowColumnDefaults", "typeWidening",
        "typeWidening-preview",        "checkpointProtection",
    }
)  # fmt: skip
LEGACY_WRITER_VERSION, FEATURES_WRITER_VERSION = 6, 7  # up to 6 a version stands for fixed features
# Of a column's metadata: values that a writer must compute or check.
_COLUMN_RULES = ("delta.generation", "delta.identity", "delta.invariants")
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """What a table demands of a writer."""

    table_id: str
    fields: tuple[Field, ...]
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    writer_version: int
    writer_features: frozenset[str]  # of version 7 only


def query_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns of a new table for a query's schema: nullable throughout, so that a later query may differ.
    Raises `InvalidSinkError` if a Delta table cannot have them."""
    fields: Sequence[Field] = schema["fields"]
    problems = [problem for field in fields for problem in _column_problems(field)]
    problems += [f"{name!r} occurs more than once" for name in _repeated(fields)]
    if problems:
        raise InvalidSinkError(f"a Delta table cannot have these columns: {'; '.join(problems)}")
    return tuple(
        {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": {}} for f in fields
    )


def missing_columns(
    table: TableDescription,
    fields: Sequence[Field],
    partition_by: Sequence[str],
    *,
    nullable: Mapping[str, bool],
) -> tuple[Field, ...]:
    """The columns of the query that the table lacks. `nullable` says which columns of the query may be null.
    Raises `InvalidSinkError` with every other reason why the query cannot be written to the table."""
    problems = list(_demands(table))
    if partition_by and tuple(partition_by) != table.partition_columns:
        problems.append(
            f"the table is partitioned by {_names(table.partition_columns)}, not by {_names(partition_by)}"
        )
    by_name = {str(field["name"]): field for field in fields}
    for column in table.fields:
        name = str(column["name"])
        given = by_name.pop(name, None)
        if given is None:
            if not column["nullable"]:
                problems.append(
                    f"the table's column {name!r} must not be null, and the query does not return it"
                )
            elif name in table.partition_columns:
                problems.append(f"the query does not return the partition column {name!r}")
            continue
        if given["type"] != _nullable(column["type"]):
            types = f"{_text(given['type'])} in the query and {_text(column['type'])} in the table"
            problems.append(f"column {name!r} is {types}")
        if not column["nullable"] and nullable.get(name, True):
            problems.append(f"column {name!r} must not be null in the table, and may be in the query")
    if not problems:
        partitioning(fields, table.partition_columns)
    existing = {str(column["name"]).lower(): column["name"] for column in table.fields}
    problems += [
        f"the query's column {name!r} is {existing[name.lower()]!r} in the table"
        for name in by_name
        if name.lower() in existing
    ]
    if problems:
        raise InvalidSinkError(f"the query does not fit the table: {'; '.join(problems)}")
    return tuple(by_name.values())


def _repeated(fields: Sequence[Field]) -> list[str]:
    """Names that a reader that ignores case could not tell apart."""
    counted = Counter(str(field["name"]).lower() for field in fields)
    return [name for name, count in counted.items() if count > 1]


def _column_problems(field: Field) -> Iterator[str]:
    name = str(field["name"])
    if repeated := next(_repeated_inside(field["type"]), None):
        yield f"{name!r} has more than one field {repeated!r}"
    if forbidden := sorted(_FORBIDDEN_IN_NAMES & set(name)):
        yield f"the name {name!r} has {', '.join(map(repr, forbidden))}; give it another one with AS"
    if bad := next(_unsupported(field["type"]), None):
        yield f"{name!r} has the type {bad}; use CAST"


def _unsupported(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        if kind not in _TYPES and not kind.startswith("decimal("):
            yield kind
        return
    for inner in _inner_types(kind):
        yield from _unsupported(inner)


def _repeated_inside(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        return
    yield from _repeated(kind.get("fields", ()))
    for inner in _inner_types(kind):
        yield from _repeated_inside(inner)


def _inner_types(kind: Mapping[str, Any]) -> list[Any]:
    if kind["type"] == "struct":
        return [field["type"] for field in kind["fields"]]
    if kind["type"] == "map":
        return [kind["keyType"], kind["valueType"]]
    return [kind["elementType"]] if kind["type"] == "array" else [str(kind["type"])]


def _nullable(kind: Any) -> Any:
    """The type without what does not change how values are stored: nullability and comments."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_column(field) for field in kind["fields"]]}
    if kind["type"] == "map":
        key, value = _nullable(kind["keyType"]), _nullable(kind["valueType"])
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}


def _column(field: Field) -> Field:
    return {"name": field["name"], "type": _nullable(field["type"]), "nullable": True, "metadata": {}}


def _demands(table: TableDescription) -> Iterator[str]:
    """What the table demands of a writer and this sink does not do."""
    if table.writer_version > FEATURES_WRITER_VERSION:
        yield f"the table needs a writer of version {table.writer_version}"
    for feature in sorted(table.writer_features - _FEATURES):
        yield f"the table uses the feature {feature!r}, which this sink does not write"
    for name, value in sorted(table.properties.items()):
        if name.startswith("delta.constraints."):
            constraint = name.removeprefix("delta.constraints.")
            yield f"the table has the constraint {constraint!r}, which nothing would check"
        if name == "delta.columnMapping.mode" and value != "none":
            yield f"the table maps columns by {value}"
        if name == _TRANSACTION_RETENTION:
            yield f"the table forgets how far it has each shard: remove its property {name}"
    for column in table.fields:
        used = [key for key in column.get("metadata", {}) if key.startswith(_COLUMN_RULES)]
        if used:
            yield f"column {column['name']!r} has {', '.join(sorted(used))}"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def _text(kind: Any) -> str:
    """A type as in SQL."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        columns = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
        return f"struct<{', '.join(columns)}>"
    return f"{kind['type']}<{', '.join(_text(inner) for inner in _inner_types(kind))}>"
