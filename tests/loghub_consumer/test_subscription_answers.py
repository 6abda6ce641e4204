"""Answers of a subscription: one that is lost changes nothing, and one that names damaged log data is shown.
In virtual time."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.errors import LogHubError
from loghub.wire.subscriptions import Exchange, Exchanged, SubscriptionSpec, SubscriptionSummary
from loghub_consumer import Consumer, LogBatch, Processor, SubscriptionOptions, Tracker
from loghub_consumer.subscription_terms import require_subscription
from tests.loghub_consumer.support import ids_of
from tests.loghub_consumer.virtual import GROUP, PROJECT, SavedLogHub, World, world

LOGSTORE, GROUPS = "access", 6


@dataclass
class RefusesOnce(Processor):
    """``deliveries`` of each log, as the batches number them."""

    deliveries: dict[str, list[int]] = field(default_factory=dict)

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for name in ids_of(logs):
            self.deliveries.setdefault(name, []).append(logs.delivery)
        if logs.delivery == 1:
            tracker.nack()
        else:
            tracker.ack()


def consumer(one: World, processor: Processor) -> Consumer:
    settings = one.settings(
        LOGSTORE,
        acknowledge="log",
        subscription=SubscriptionOptions(type=SubscriptionType.SHARED, prefetch_logs=4),
        max_logs=1,
        redelivery_delay_s=0.01,  # the log is out again before the call is repeated
        max_redelivery_delay_s=0.01,
    )
    return Consumer(settings, lambda: processor)


def prepared(one: World, *, shards: int = 1) -> None:
    one.make_logstore(LOGSTORE, shards=shards, has_group=False)
    one.client.create_subscription(LOGSTORE, GROUP, SubscriptionSpec(type=SubscriptionType.SHARED))
    for number in range(GROUPS):
        one.put(LOGSTORE, [f"{number}"], shard=number % shards)


def is_over(one: World) -> bool:
    assert one.server.subscriptions is not None
    shards = one.server.subscriptions[PROJECT, LOGSTORE][GROUP].core.shards
    return all(cursor.acked.mark == position_of(GROUPS // len(shards)) for cursor in shards.values())


@pytest.mark.parametrize("times", [1, 3])
def test_a_refusal_whose_answer_is_lost_counts_once(times: int) -> None:
    with world(seed=5) as one:
        prepared(one)
        lost: Counter[int | None] = Counter()

        def loses(exchange: Exchange) -> bool:
            if not exchange.nacks or lost[exchange.settlement] == times:
                return False
            lost[exchange.settlement] += 1
            return True

        one.loses = loses
        processor = RefusesOnce()
        program = one.start(lambda: consumer(one, processor), "c-0")
        one.until(lambda: is_over(one), "all logs")
        program.end()
        assert processor.deliveries == {f"{number}": [1, 2] for number in range(GROUPS)}
        assert set(lost.values()) == {times}


def test_damaged_log_data_is_an_error_of_the_consumer_and_other_shards_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world(seed=6) as one:
        prepared(one, shards=2)
        exchange, is_damaged = SavedLogHub.exchange, [True]

        def damaged(client: SavedLogHub, logstore: str, name: str, wanted: Exchange) -> Exchanged:
            answer = exchange(client, logstore, name, wanted)
            return replace(answer, unreadable={7: "another checksum"}) if is_damaged[0] else answer

        monkeypatch.setattr(SavedLogHub, "exchange", damaged)
        processor = RefusesOnce()
        program = one.start(lambda: consumer(one, processor), "c-0")
        one.until(lambda: is_over(one), "the logs of other shards")
        (error,) = program.call(lambda consumer: consumer.errors())
        assert (error.shard, error.reason) == (None, "InternalServerError")
        assert error.message == "log data cannot be read: shard 7: another checksum"
        is_damaged[0] = False
        one.until(lambda: not program.call(lambda consumer: consumer.errors()), "no error")
        program.end()


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
def test_a_subscription_that_another_client_creates_at_the_same_moment_is_not_changed(
    kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world() as one:
        one.make_logstore(LOGSTORE, has_group=False)
        client, listed = one.client, one.client.list_subscriptions

        def lists(logstore: str) -> tuple[SubscriptionSummary, ...]:
            seen = listed(logstore)
            if not seen:
                client.create_subscription(logstore, GROUP, SubscriptionSpec(type=kind))
            return seen

        monkeypatch.setattr(client, "list_subscriptions", lists)
        how = SubscriptionOptions(type=SubscriptionType.SHARED)
        settings = one.settings(LOGSTORE, acknowledge="log", subscription=how, create_group=True)
        if kind is SubscriptionType.SHARED:
            require_subscription(client, settings)
        else:
            with pytest.raises(LogHubError, match="has the type Exclusive"):
                require_subscription(client, settings)
        assert [summary.type for summary in listed(LOGSTORE)] == [kind]
