"""Which columns and settings executors take for Parquet files in a bucket."""

from typing import Any

import pytest

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.formats import codec, require_columns, timestamps


def schema_of(*kinds: Any) -> dict[str, Any]:
    return {"fields": [{"name": f"c{number}", "type": kind} for number, kind in enumerate(kinds)]}


def test_columns_that_would_be_written_in_another_way_are_refused() -> None:
    nested = {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": "variant"}}
    with pytest.raises(InvalidSinkError, match=r"'c1' has the type interval; .*'c2' has the type variant"):
        require_columns(schema_of("long", "interval", nested))
    with pytest.raises(InvalidSinkError, match="'a' occurs more than once"):
        require_columns({"fields": [{"name": name, "type": "long"} for name in "aA"]})
    with pytest.raises(InvalidSinkError, match="'c1' has the type struct<>"):
        require_columns(schema_of("long", {"type": "array", "elementType": {"type": "struct", "fields": []}}))
    require_columns(schema_of("long", {"type": "struct", "fields": schema_of("decimal(3,1)")["fields"]}))


def test_settings_that_pyarrow_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidSinkError, match="lzo"):
        codec("lzo")
    assert (codec("SNAPPY"), codec("uncompressed"), codec("lz4_raw")) == ("snappy", "none", "lz4")
    both = schema_of("timestamp", {"type": "array", "elementType": "timestamp_ntz"})
    with pytest.raises(InvalidSinkError, match=r"outputTimestampType in spec\.spark\.conf"):
        timestamps(both, "INT96")
    assert timestamps(both, "TIMESTAMP_MICROS") == "TIMESTAMP_MICROS"
    assert timestamps(schema_of("timestamp_ntz"), "INT96") == "TIMESTAMP_MICROS"
    assert timestamps(schema_of("timestamp"), "INT96") == "INT96"
