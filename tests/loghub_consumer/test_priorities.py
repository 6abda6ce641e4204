"""A shard with a high priority that cannot go on keeps none waiting."""

from collections import Counter

from loghub_consumer import Consumer, LogBatch, Processor, Tracker
from tests.loghub_consumer.virtual import world


def test_a_shard_that_waits_for_a_refused_log_keeps_no_shard_of_a_lower_priority_waiting() -> None:
    """So much is not acknowledged that nothing new is handed over, and more is there."""
    came: Counter[int] = Counter()

    class Refusing(Processor):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            came[logs.shard] += len(logs.groups)
            for group in logs.groups:
                if group.place.cursor == first:
                    tracker.nack(group, delay_s=86_400.0)
                else:
                    tracker.ack(group)

    with world() as one:
        one.make_logstore("access", shards=2)
        settings = one.settings("access", acknowledge="log", max_unacknowledged=10, max_buffered_bytes=4000)
        program = one.start(lambda: Consumer(settings, Refusing))
        one.until(lambda: program.call(lambda found: len(found.assignment())) == 2, "both shards")
        program.call(lambda found: found.prioritize([0], 1))
        first = one.put("access", ["refused"])
        for number in range(30):
            one.put("access", [str(number)])
        one.until(lambda: came[0] == 10, "as many as may be without an acknowledgement")
        one.put("access", ["other"], shard=1)
        one.until(lambda: came[1] == 1, "the other shard")
        assert came[0] == 10
        program.kill()
