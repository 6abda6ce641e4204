"""`loghub_consumer.read` at a real service, as a notebook calls it."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

import loghub_consumer
from loghub.extras import MissingPackageError
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import LogHubError, LogTable
from loghub_consumer.log_table import SHOWN_CHARS, SHOWN_ROWS
from loghub_consumer.reading.decoding import SCHEMA
from tests.loghub_consumer.support import PROJECT, Site


def read(site: Site, **changes: Any) -> LogTable:
    options: dict[str, Any] = {
        "project": PROJECT,
        "endpoint": site.service.endpoint,
        "credentials": site.service.credentials,
        "since": "begin",
    }
    return loghub_consumer.read(site.logstore, **options | changes)


def put(site: Site, *contents: tuple[str, str | bytes]) -> None:
    log = Log(time=1_700_000_000, contents=contents)
    site.client.put_logs(site.logstore, encode(LogGroup(logs=(log,), topic="t")))


def test_a_table_has_the_logs_of_all_shards_also_by_the_variables_of_the_command_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare(shards=2)
    ids = [*site.put(2), *site.put(1, shard=1)]
    site.client.split_shard(site.logstore, 0)
    table = read(site, since=datetime.fromtimestamp(time.time() - 600, UTC))
    assert table.arrow().schema.equals(SCHEMA)
    assert [dict(pairs)["id"] for pairs in table.arrow().column("contents").to_pylist()] == ids
    assert (len(table), table.is_complete) == (6, True)
    assert "6 logs of" in repr(table)
    assert len(read(site, until="1h")) == 0
    key = site.service.credentials
    for name, value in (
        ("LOGHUB_ENDPOINT", site.service.endpoint),
        ("LOGHUB_PROJECT", PROJECT),
        ("LOGHUB_ACCESS_KEY_ID", key.access_key_id),
        ("LOGHUB_ACCESS_KEY_SECRET", key.access_key_secret),
    ):
        monkeypatch.setenv(name, value)
    assert len(loghub_consumer.read(site.logstore)) == 6


def test_the_view_of_a_notebook_is_bounded_and_runs_nothing_that_a_log_contains(site: Site) -> None:
    site.prepare()
    put(site, ("<script>alert(1)</script>", "a & b"), ("huge", "x" * 10_000))
    site.put(SHOWN_ROWS, logs=1)
    html = read(site)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;=a &amp; b" in html
    assert html.count("<tr>") == 1 + SHOWN_ROWS
    assert "x" * (SHOWN_CHARS + 1) not in html
    assert "1 more rows" in html


def test_pandas_is_named_where_it_is_missing(site: Site) -> None:
    site.prepare()
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        read(site).df()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"since": "yesterday"}, "'yesterday' is not a time"),
        ({"since": "1h", "until": "2h"}, "not before until"),
        ({"until": "begin"}, "not before until"),
        ({"limit_mib": 0}, "limit_mib is 0"),
        ({"project": None}, "set the variable LOGHUB_PROJECT"),
        ({"endpoint": "http://logs.example.com"}, "use https"),
    ],
)
def test_a_mistake_is_named(
    site: Site, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOGHUB_PROJECT", raising=False)
    with pytest.raises(ValueError, match=message):
        read(site, **changes)


def test_a_logstore_that_is_not_there_is_named(site: Site) -> None:
    with pytest.raises(LogHubError, match="LogStoreNotExist"):
        read(site)
