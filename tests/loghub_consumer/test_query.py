"""A query in the pulls of a consumer: of the real SLS, whose answers the tests make of those without one."""

from dataclasses import replace
from typing import Any

import pytest

from loghub.client.port import PackedPull
from loghub.wire.compression import Packed
from loghub.wire.loggroup import split, wrap
from loghub_consumer import Consumer
from tests.loghub_consumer.support import Seen, Site, running, wait_for

QUERY = "* | where id like '%7'"


def filtered(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers have only log groups of which the id ends with 7, and the cursor after all of them."""
    pull_packed = consumer._client.pull_packed

    def pull(*place: Any, query: str | None, **named: Any) -> PackedPull:
        assert query == QUERY
        pulled = pull_packed(*place, **named)
        left = [bytes(group) for group in split(pulled.unpacked().body) if b"7" in bytes(group)[-2:]]
        return replace(pulled, body=Packed.plain(wrap(left)), count=len(left))

    monkeypatch.setattr(consumer._client, "pull_packed", pull)


def test_a_query_is_sent_and_what_it_returns_is_processed_and_saved_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()
    ids = site.put(40, logs=1)
    seen, later = Seen(), Seen()
    settings = site.settings(query=QUERY, checkpoint_interval_s=0.0, max_bytes=50)
    first = Consumer(settings, seen.factory)
    filtered(first, monkeypatch)
    with running(first):
        wait_for(lambda: len(seen.ids()) == 4, "what the query returns")
        wait_for(lambda: site.saved() == site.ends(), "the checkpoint to pass what follows")
        assert first.errors() == ()
    assert seen.ids() == [name for name in ids if name.endswith("7")]
    assert site.saved() == site.ends()
    more = site.put(8, logs=1)
    second = Consumer(settings, later.factory)
    filtered(second, monkeypatch)
    with running(second):
        wait_for(lambda: later.ids() == [more[7]], "what follows, and nothing again")


def test_the_embedded_service_refuses_a_query_and_the_consumer_says_so(site: Site) -> None:
    site.prepare()
    site.put(1)
    seen = Seen()
    consumer = Consumer(site.settings(query=QUERY), seen.factory)
    with running(consumer):
        wait_for(lambda: bool(consumer.errors()), "the error")
        (error,) = consumer.errors()
    assert (error.shard, error.reason) == (0, "ParameterInvalid")
    assert "does not support query" in error.message
    assert (seen.ids(), site.saved()[0]) == ([], site.begin())
