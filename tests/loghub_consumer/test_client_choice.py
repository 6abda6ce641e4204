"""A consumer over the vendor's SDK, which has no extensions: it does as on the real SLS."""

import pytest

from loghub.client import http
from loghub_consumer import Consumer, ConsumerSettings
from tests.loghub_consumer.support import GROUP, Seen, Site, running, wait_for


def refused(*_: object, **__: object) -> None:
    raise AssertionError("a client was opened that was not chosen")


def test_a_consumer_over_the_vendors_sdk_reads_saves_and_continues(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group, heartbeats, pulls and checkpoints."""
    site.client.create_logstore(site.logstore, shards=2)
    ids = {shard: site.put(10, shard=shard) for shard in range(2)}
    monkeypatch.setattr(http, "HttpLogHub", refused)
    seen = Seen()
    settings = site.settings(client="sdk", create_group=True, timeout_s=30)
    with running(Consumer(settings, seen.factory)):
        wait_for(lambda: len(seen.ids()) == len(site.sent), "all logs")
        ids[1] += site.put(2, shard=1)
        wait_for(lambda: site.saved() == site.ends(), "what was written later")
    assert {shard: seen.ids(shard) for shard in ids} == ids
    assert [group.name for group in site.client.list_groups(site.logstore)] == [GROUP]

    later, again = site.put(3), Seen()
    with running(Consumer(settings, again.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the rest")
    assert again.ids() == later


def test_a_client_that_there_is_not_is_refused_at_once(site: Site) -> None:
    with pytest.raises(ValueError, match="it must be one of http, sdk"):
        ConsumerSettings(credentials=site.service.credentials, **site.plain_settings(client="java"))
