"""From a consumer group to a subscription and back while logs are written: nothing is lost, and what comes
again is counted and said."""

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub_consumer import Consumer, ConsumerSettings, LogBatch, Processor, Tracker
from tests.loghub.client.contract import HIGH, LOW, group_of
from tests.loghub_cli.command import STORE, Cli
from tests.loghub_cli.subscribed import PortConsumer
from tests.loghub_consumer.support import running, wait_for

GROUP, NAME = "readers", "workers"


class Writer:
    """Writes numbered lines to both shards until it is stopped, in groups of three."""

    def __init__(self, client: HttpLogHub) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.lines: list[str] = []
        self._thread.start()

    def _write(self) -> None:
        for number, key in zip(itertools.count(step=3), itertools.cycle((LOW, HIGH)), strict=False):
            lines = [f"{number + one}" for one in range(3)]
            self._client.put_logs(STORE, group_of(*lines), hash_key=key)
            self.lines += lines
            if self._stop.is_set() or len(self.lines) > 100_000:  # a bound for a test that hangs
                return

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Counting(Processor):
    """Saves each batch, and counts its lines once the checkpoint is behind them."""

    def __init__(self, seen: Counter[str]) -> None:
        self._seen = seen

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()
        self._seen.update(lines_of(logs))


def lines_of(logs: LogBatch) -> list[str]:
    return [dict(one.contents)["line"] for group in logs.groups for one in group.logs]


def consume_with_group(cli: Cli, seen: Counter[str], is_done: Callable[[], bool]) -> None:
    """One consumer of the group."""
    settings = ConsumerSettings(
        endpoint=cli.service.endpoint,
        project=cli.project,
        credentials=cli.service.credentials,
        logstore=STORE,
        consumer_group=GROUP,
        consumer="c-0",
        heartbeat_interval_s=0.3,
        max_logs=10,
    )

    with running(Consumer(settings, lambda: Counting(seen))):
        wait_for(is_done, "the consumer of the group")


def consume_with_subscription(cli: Cli, acked: Counter[str], *, enough: int) -> None:
    """Two consumers of Shared take turns. One log in ten is never acknowledged, the others at once."""
    consumers = [PortConsumer(cli.client, STORE, NAME, name) for name in ("one", "two")]
    for consumer in itertools.cycle(consumers):
        new = consumer.receive(50)
        done = [place for place, line in new.items() if int(line) % 10]
        consumer.ack(*done)
        acked.update(new[place] for place in done)
        if len(acked) >= enough:
            break
    for consumer in consumers:
        consumer.leave()


@pytest.mark.long
def test_a_group_becomes_a_subscription_and_a_group_again_and_no_log_is_lost(cli: Cli) -> None:
    cli.client.create_group(STORE, GroupInfo(name=GROUP, timeout_s=30, order=False))
    before, acked, after = Counter[str](), Counter[str](), Counter[str]()
    writer = Writer(cli.client)
    try:
        consume_with_group(cli, before, lambda: len(before) >= 60)
        made = cli("subscription", "create", STORE, NAME, "--from-group", GROUP)
        assert (made.status, made.err) == (0, "")
        consume_with_subscription(cli, acked, enough=300)
        back = cli("group", "reset", STORE, GROUP, "--from-subscription", NAME, "--yes")
        assert back.status == 0, back.err
    finally:
        writer.stop()
    written = set(writer.lines)
    consume_with_group(cli, after, lambda: before.keys() | acked.keys() | after.keys() == written)
    # 1. Nothing was lost, since the last consumer has ended; a checkpoint is exact in both directions.
    assert not before.keys() & acked.keys()
    assert not before.keys() & after.keys()
    # 2. No log that was acknowledged came again in the subscription, and in the group those that were said.
    assert set(acked.values()) == {1}
    said = re.search(r"(\d+) logs that subscription workers has acknowledged above", back.err)
    assert said is not None
    assert len(acked.keys() & after.keys()) == int(said[1]) > 0
    assert set(after.values()) == {1}
