"""What is due in a shard is noticed, wherever the threads of the consumer stand."""

from typing import Any

import pytest

from loghub_consumer import Consumer, LogBatch, Processor, Tracker, puller, shard_runner
from tests.loghub_consumer.virtual import SavedLogHub, world
from tests.simulator.lines import STOPPED_S, Lines

MIN_LINES = 100  # from a seek to the end of the shard
NEVER_S = 1e6


class Saving(Processor):
    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()


def test_after_a_seek_while_a_thread_stands_at_any_line_the_shard_is_processed_again() -> None:
    """Nothing else would let it be: the fetch interval lasts longer than the test."""
    with world() as one, (lines := Lines(one.threads, puller, shard_runner)).followed():
        one.make_logstore("ls-0")
        one.put("ls-0", ["a"])
        program = one.start(lambda: Consumer(one.settings("ls-0", fetch_interval_s=NEVER_S), Saving))
        one.until(lambda: one.is_saved("ls-0"), "the first time")
        end = one.client.get_cursor("ls-0", 0, "end")

        def seek_at(consumer: Any, number: int) -> bool:
            lines.stop_at(number)
            consumer.seek(0, "begin")
            if not lines.is_stopped():
                return False
            consumer.seek(0, "begin")
            return True

        number = 0
        while program.call(lambda consumer, number=number: seek_at(consumer, number)):  # type: ignore[misc]
            one.pass_time(2 * STOPPED_S)
            position = program.call(lambda consumer: consumer.position(0))
            assert position == end, f"sought at {lines.stopped_at}"
            number += 1
        assert number >= MIN_LINES
        program.end()


def test_a_pull_that_is_answered_late_delays_that_of_no_other_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as one:
        one.make_logstore("ls-0", shards=2)
        one.put("ls-0", ["a"], shard=0)
        one.put("ls-0", ["b"], shard=1)
        program = one.start(lambda: Consumer(one.settings("ls-0", max_pulls=2), Saving))
        one.until(lambda: one.is_saved("ls-0"), "both shards")
        pull = SavedLogHub.pull_packed

        def late(client: SavedLogHub, logstore: str, shard: int, **more: Any) -> Any:
            one.sleep(NEVER_S if shard == 0 else 0.0)
            return pull(client, logstore, shard, **more)

        monkeypatch.setattr(SavedLogHub, "pull_packed", late)
        one.pass_time(5.0)  # then the other shard's is due, and nothing but the time says so
        end = one.put("ls-0", ["c"], shard=1) + 1
        one.pass_time(5.0)
        assert one.saved("ls-0")[1] == end
        program.end()
