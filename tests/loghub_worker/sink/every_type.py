"""Columns of every type that a sink of files takes, and what Spark notes in a file of Parquet."""

import json
from typing import Any

import pyarrow.parquet as pq

MOMENT = "TIMESTAMP'2026-01-31 10:11:12.123456'"
# Every type, with and without nulls, and at the bounds.
COLUMNS = [
    "id", "CAST(id AS BYTE) AS b", "CAST(id AS SHORT) AS s", "CAST(-id AS INT) AS i", "id = 1 AS even",
    "CAST(id / 3 AS FLOAT) AS f", "IF(id = 3, DOUBLE('NaN'), id / 7) AS e", "CAST('é' AS BINARY) AS bin",
    "DATE'2026-01-31' + CAST(id AS INT) AS day", f"{MOMENT} + MAKE_INTERVAL(0, 0, 0, id) AS moment",
    "CAST(id AS DECIMAL(5, 2)) AS d5", "CAST(id AS DECIMAL(15, 2)) AS d9", "CAST(-id AS DECIMAL(38, 3)) AS g",
    "ARRAY(id, NULL) AS list", "MAP('a', id) AS map", "NAMED_STRUCT('a', id, 'b.c', NULLIF(id, 1)) AS st",
    "IF(id = 1, NULL, ARRAY(NAMED_STRUCT('q', MAP('k', ARRAY(1))))) AS deep", "CAST(NULL AS STRING) AS n",
    "IF(id = 2, NULL, CONCAT('\u00fc\n\"', REPEAT('x', CAST(id AS INT) * 9))) AS `a text.`",
]  # fmt: skip
# Each character of ASCII that a text can have, what is no character of it, and what has no name.
KINDS = [*(chr(code) for code in range(32, 46)), "".join(map(chr, range(1, 128))), "ü/ö", " ", "", None]


def of_spark(file: pq.ParquetFile) -> tuple[dict[str, Any], str]:
    """What Spark notes of itself in a file, and the compression."""
    found = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
    schema = json.loads(found.pop("org.apache.spark.sql.parquet.row.metadata"))
    return found | {"schema": schema}, file.metadata.row_group(0).column(0).compression
