"""The timeout of the group is changed while consumers run, which they have from the group."""

from dataclasses import replace
from typing import Any

import pytest

from loghub.client.port import GroupInfo
from loghub_consumer import Consumer, LogBatch, MultiLogstoreConsumer, Processor, Tracker
from tests.loghub_consumer.virtual import GROUP, world


@pytest.mark.parametrize(
    ("before_s", "after_s", "is_alone"),
    [
        # Less than the pause between two heartbeats: until it knew, it would be timed out each time.
        (60, 4, True),
        (60, 4, False),
        (60, 12, True),  # it would take its shards for its own long after others have them
        (4, 60, True),
    ],
)
def test_sessions_and_heartbeats_follow_the_timeout_of_the_group(
    before_s: int, after_s: int, is_alone: bool
) -> None:
    assigned: list[float] = []

    class Noting(Processor):
        def initialize(self, shard: int) -> None:
            assigned.append(one.clock.now_s)

        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            tracker.save()

    with world() as one:
        one.make_logstore("access", has_group=False)
        one.client.create_group("access", GroupInfo(name=GROUP, timeout_s=before_s, order=False))
        settings = one.settings("access", heartbeat_interval_s=5.0)

        def make() -> Any:
            if is_alone:
                return Consumer(settings, Noting)
            return MultiLogstoreConsumer(replace(settings, logstore=""), lambda _: Noting, ["access"])

        program = one.start(make)
        one.until(lambda: len(assigned) == 1, "the shard")
        one.client.update_group("access", GroupInfo(name=GROUP, timeout_s=after_s, order=False))
        one.pass_time(60.0)
        found = program.call(
            lambda found: (found if is_alone else found.consumers()["access"]).inspect(
                lambda membership, *_: membership.timings
            )
        )
        assert (found.timeout_s, found.interval_s) == (after_s, min(5.0, after_s / 3))
        before = len(assigned)
        one.pass_time(600.0)
        assert len(assigned) == before, "it keeps its shard"
        program.kill()
