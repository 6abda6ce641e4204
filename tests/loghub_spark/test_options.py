"""The options as values, and errors that say which option is wrong and how."""

from typing import Any

import pytest

from loghub.wire.cursor import encode
from loghub_spark.options import (
    EARLIEST,
    ENV_KEY_ID,
    ENV_KEY_SECRET,
    EVERY,
    LATEST,
    Bound,
    MicroBatchLimits,
    OptionError,
    Use,
    check_names,
    connection,
    read_options,
)
from tests.support import ROOT

SECRET = "sT0psecret"
REQUIRED = {
    "endpoint": "http://127.0.0.1:1",
    "project": "demo",
    "logstore": "access",
    "credentialsDir": "/keys",
}
BY_KEY = {name: value for name, value in REQUIRED.items() if name != "credentialsDir"} | {
    "accessKeyId": "someKeyId",
    "accessKeySecret": SECRET,
}


def parsed(use: Use = Use.STREAM_READ, **more: str) -> Any:
    return read_options(REQUIRED | more, use)


def test_defaults() -> None:
    stream, batch = parsed(), parsed(Use.BATCH_READ)
    assert (stream.start, batch.start) == (Bound(everywhere=LATEST), Bound(everywhere=EARLIEST))
    assert batch.end == Bound(everywhere=LATEST)
    assert (stream.shards, stream.in_order, stream.fail_on_data_loss, stream.fail_fast) == (
        None, False, True, False,
    )  # fmt: skip
    assert (stream.limits, stream.min_partitions, stream.fetch_interval_s) == (MicroBatchLimits(), None, 1.0)


def test_names_are_understood_in_any_case() -> None:
    options = read_options({name.upper(): value for name, value in REQUIRED.items()}, Use.STREAM_READ)
    assert options.connection.project == "demo"


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("startingOffsets", "latest", "start", Bound(everywhere=LATEST)),
        ("startingOffsets", "EARLIEST", "start", Bound(everywhere=EARLIEST)),
        ("startingOffsets", '{"0": 17, "1": -2}', "start", Bound(by_shard={0: 17, 1: -2})),
        ("startingOffsets", f'{{"3": "{encode(99)}"}}', "start", Bound(by_shard={3: 99})),
        ("startingTimestamp", "1767225600999", "start", Bound(unix_s=1767225600)),
        ("startingTimestamp", "2026-01-01T08:00:00.5+08:00", "start", Bound(unix_s=1767225600)),
        ("shards", "4, 0-2", "shards", frozenset({0, 1, 2, 4})),
        ("inOrder", "TRUE", "in_order", True),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("mode", "failfast", "fail_fast", True),
        ("minPartitions", "12", "min_partitions", 12),
        ("maxBytesPerTrigger", "10", "limits", MicroBatchLimits(bytes=10)),
        ("maxOffsetsPerTrigger", "10", "limits", MicroBatchLimits(log_groups=10)),
        ("maxLogsPerTrigger", "10", "limits", MicroBatchLimits(logs=10)),
        ("fetchIntervalSeconds", "0.2", "fetch_interval_s", 0.2),
    ],
)
def test_values(name: str, value: str, field: str, expected: Any) -> None:
    assert getattr(parsed(**{name: value}), field) == expected


def test_the_end_of_a_time_range_is_rounded_up() -> None:
    for text in ("1767225600001", "2026-01-01T00:00:00.000001Z"):
        assert parsed(Use.BATCH_READ, endingTimestamp=text).end == Bound(unix_s=1767225601)
    assert parsed(Use.BATCH_READ, endingTimestamp="1767225600000").end == Bound(unix_s=1767225600)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"projct": "x"}, "no option 'projct'; did you mean project"),
        ({"startingoffset": "x"}, "did you mean startingOffsets"),
        ({"zzz": "x"}, "no option 'zzz'. It knows endpoint, project"),
        ({"path": "access"}, "no path here: name the option logstore"),
        ({"project": " "}, "option project is missing"),
        ({"project": "demo.example"}, "option project: 'demo.example' is not a valid project name: 1 to"),
        ({"logstore": "Access"}, "option logstore: 'Access' is not a valid logstore name: 2 to 80"),
        ({"endingOffsets": "latest"}, "option endingOffsets is not for a stream"),
        ({"endpoint": "ftp://x"}, "option endpoint: 'ftp://x' is not of the form"),
        ({"endpoint": "http://cn-hangzhou.log.aliyuncs.com"}, "public internet"),
        ({"startingOffsets": "newest"}, "startingOffsets: must be earliest or latest or cursors by shard"),
        ({"startingOffsets": "{}"}, "cursors by shard"),
        ({"startingOffsets": "[1]"}, "cursors by shard"),
        ({"startingOffsets": '{"a": 1}'}, "cursors by shard"),
        ({"startingOffsets": '{"0": true}'}, "cursors by shard"),
        ({"startingOffsets": '{"0": -3}'}, "cursors by shard"),
        ({"startingOffsets": '{"0": "17"}'}, "cursors by shard"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "either startingOffsets or"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "with its offset"),
        ({"startingTimestamp": "-5"}, "before 1970"),
        ({"shards": "0,x"}, "numbers of shards such as 0,2,5-7, not '0,x'"),
        ({"shards": "3-1"}, "numbers of shards"),
        ({"shards": "0-99999999"}, "more shards than"),
        ({"inOrder": "yes"}, "inOrder: must be true or false"),
        ({"minPartitions": "0"}, "minPartitions: must be a whole number above 0"),
        ({"maxLogsPerTrigger": "1.5"}, "maxLogsPerTrigger: must be a whole number"),
        ({"fetchIntervalSeconds": "nan"}, "0.05 to 3600"),
        ({"mode": "DROPMALFORMED"}, "PERMISSIVE or FAILFAST"),
        ({"accessKeyId": "a", "accessKeySecret": SECRET}, "either credentialsDir or accessKeyId"),
    ],
)
def test_a_wrong_option_is_named(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed(**more)
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_write_has_no_options_of_a_read() -> None:
    with pytest.raises(OptionError, match="startingOffsets is not for a write"):
        connection(REQUIRED | {"startingOffsets": "latest"}, Use.WRITE)
    assert connection(REQUIRED | {"checkpointLocation": "/c"}, Use.WRITE).logstore == "access"


def test_an_http_host_on_the_internet_must_be_allowed() -> None:
    host = "cn-hangzhou.log.aliyuncs.com"
    options = parsed(endpoint=f"http://{host}", allowHttp=f"a.example, {host}")
    assert options.connection.endpoint == f"http://{host}"
    assert parsed(endpoint=f"https://{host}").connection.project == "demo"


def test_the_key_is_given_in_exactly_one_way() -> None:
    none = {name: value for name, value in REQUIRED.items() if name != "credentialsDir"}
    with pytest.raises(OptionError, match="there is no access key: set the option credentialsDir"):
        connection(none, Use.WRITE, environment={ENV_KEY_ID: "a"})
    assert connection(none, Use.WRITE, environment={ENV_KEY_ID: "a", ENV_KEY_SECRET: "b"}).key is None
    for half in ({"accessKeyId": "a"}, {"accessKeySecret": SECRET}, {"securityToken": SECRET}):
        with pytest.raises(OptionError, match="belong together") as raised:
            connection(none | half, Use.WRITE, environment={})
        assert SECRET not in str(raised.value)


def test_a_key_is_in_no_text_of_the_options() -> None:
    options = read_options(BY_KEY | {"securityToken": "t0ken"}, Use.STREAM_READ)
    assert options.connection.key is not None
    assert options.connection.key.access_key_secret == SECRET
    for part in (SECRET, "someKeyId", "t0ken"):
        assert part not in repr(options)


def test_the_page_has_every_option() -> None:
    page = (ROOT / "docs" / "data-source.md").read_text()
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    assert [name for name in EVERY if f"`{name}`" not in rows] == []


def test_every_name_is_accepted_and_no_two_differ_in_case_only() -> None:
    check_names(dict.fromkeys(EVERY, ""))
    assert len({name.lower() for name in EVERY}) == len(EVERY)
