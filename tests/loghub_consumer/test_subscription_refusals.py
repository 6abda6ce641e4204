"""Exchanges that the log service refuses: what a repetition changes is repeated, and anything else ends the
consumer. In virtual time.

Each kind of call is refused with each kind of error, in a program and in a worker. Whatever happens, no log
is lost, and none comes again after its receipt.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.errors import Code, LogHubError
from loghub.wire.subscriptions import Exchange, SubscriptionSpec
from loghub_consumer import Consumer, LogBatch, Processor, SubscriptionOptions, Tracker
from tests.fakes.fake_subscriptions import Subscribed
from tests.loghub_consumer.support import ids_of
from tests.loghub_consumer.virtual import GROUP, PROJECT, Program, World, world
from tests.loghub_consumer.virtual_worker import DirectPool, in_worker

LOGSTORE, GROUPS = "access", 12
CALLS = ("join", "receive", "settle")
PLACES = ("program", "worker")
FINAL = (
    Code.PARAMETER_INVALID,
    Code.POST_BODY_TOO_LARGE,
    Code.POST_BODY_INVALID,
    Code.POST_BODY_UNCOMPRESS_ERROR,
)
PASSING = (
    Code.UNAUTHORIZED,
    Code.SIGNATURE_NOT_MATCH,
    Code.REQUEST_TIME_EXPIRED,
    Code.LOG_STORE_NOT_EXIST,
    Code.SUBSCRIPTION_NOT_EXIST,
    Code.SUBSCRIPTION_BUSY,
    Code.SUBSCRIPTION_QUOTA_EXCEED,
    Code.SUBSCRIPTION_FENCED,
    Code.INVALID_METHOD,
    Code.BAD_RESPONSE,
    Code.SERVER_BUSY,
    Code.INTERNAL_SERVER_ERROR,
)


def is_call(exchange: Exchange, call: str) -> bool:
    match call:
        case "join":
            return not exchange.session
        case "receive":
            return exchange.number is not None
    return bool(exchange.acks)


@dataclass
class Receipts(Processor):
    """Acknowledges each batch and waits for the receipt."""

    world: World
    seen: Counter[str] = field(default_factory=Counter)
    receipted: set[str] = field(default_factory=set)
    errors: list[Exception] = field(default_factory=list)

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        names = ids_of(logs)
        self.world.check(not self.receipted & set(names), "a receipt was given, and the log comes again")
        self.seen.update(names)
        tracker.ack()
        try:
            tracker.save()
        except Exception as error:
            self.errors.append(error)
            raise
        self.receipted.update(names)


def start(one: World, processor: Receipts, place: str, folder: Path, name: str = "c-0") -> Program:
    settings = one.settings(
        LOGSTORE,
        consumer=name,
        acknowledge="log",
        subscription=SubscriptionOptions(type=SubscriptionType.SHARED, prefetch_logs=4),
        timeout_s=10,
        max_logs=3,
        redelivery_delay_s=0.5,
        drain_timeout_s=5.0,
    )
    if place == "program":
        return one.start(lambda: Consumer(settings, lambda: processor), name)
    pool = DirectPool(lambda: processor)
    return one.start(lambda: in_worker(settings, lambda: processor, folder, one.clock, pool=pool), name)


def prepared(one: World) -> set[str]:
    one.make_logstore(LOGSTORE, has_group=False)
    one.client.create_subscription(LOGSTORE, GROUP, SubscriptionSpec(type=SubscriptionType.SHARED))
    ids = [[f"{number}-{index}" for index in range(2)] for number in range(GROUPS)]
    for names in ids:
        one.put(LOGSTORE, names)
    return {name for names in ids for name in names}


def subscribed(one: World) -> Subscribed:
    assert one.server.subscriptions is not None
    return one.server.subscriptions[PROJECT, LOGSTORE][GROUP]


def members(one: World) -> int:
    return len(subscribed(one).members)


def is_over(one: World) -> bool:
    return subscribed(one).core.shards[0].acked.mark == position_of(GROUPS)


def rows(codes: tuple[Code, ...]) -> list[object]:
    """Each code with each call and place; in `make test` each of them at least once."""
    pairs = list(product(CALLS, PLACES))
    size = max(len(codes), len(pairs))
    fast = {(codes[number % len(codes)], *pairs[number % len(pairs)]) for number in range(size)}
    table = [(code, *pair) for code in codes for pair in pairs]
    return [pytest.param(*row, marks=() if row in fast else pytest.mark.deep) for row in table]


@pytest.mark.parametrize(("code", "call", "place"), rows(FINAL))
def test_a_refusal_that_no_repetition_changes_ends_the_consumer_and_loses_nothing(
    code: Code, call: str, place: str, tmp_path: Path
) -> None:
    with world(seed=2) as one:
        sent, processor = prepared(one), Receipts(one)
        least = 0 if call == "join" else 5  # receipts before

        def refuse(exchange: Exchange) -> None:
            if is_call(exchange, call) and len(processor.receipted) >= least:
                raise LogHubError.of(code, "what you say is no exchange")

        one.refuses = refuse
        program = start(one, processor, place, tmp_path / "c-0")
        one.until(lambda: program.has_ended, "the end")
        assert isinstance(program.error, LogHubError)
        assert (program.error.code, program.error.message) == (code, "what you say is no exchange")
        assert members(one) == 0, "it has left in order"
        assert bool(processor.errors) is (call == "settle"), "there is no receipt"
        program.kill()
        one.refuses = lambda _: None
        after = start(one, processor, place, tmp_path / "c-1", "c-1")
        one.until(lambda: is_over(one), "all logs")
        after.end()
        assert set(processor.seen) == sent


@pytest.mark.parametrize(("code", "call", "place"), rows(PASSING))
def test_a_refusal_that_may_pass_is_shown_and_repeated(
    code: Code, call: str, place: str, tmp_path: Path
) -> None:
    with world(seed=3) as one:
        sent, processor, left = prepared(one), Receipts(one), [4]

        def refuse(exchange: Exchange) -> None:
            if is_call(exchange, call) and left[0]:
                left[0] -= 1
                raise LogHubError.of(code)

        one.refuses = refuse
        program = start(one, processor, place, tmp_path)
        if code is not Code.SUBSCRIPTION_FENCED:  # it joins again at once
            one.until(lambda: bool(program.call(lambda consumer: consumer.errors())), "the error")
        one.until(lambda: is_over(one), "all logs")
        one.until(lambda: not program.call(lambda consumer: consumer.errors()), "no error")
        program.end()
        assert left == [0]
        assert set(processor.seen) == sent


@pytest.mark.parametrize("place", PLACES)
def test_another_type_ends_a_program_and_a_worker_waits_for_the_operator(place: str, tmp_path: Path) -> None:
    with world(seed=4) as one:
        sent, processor, is_other = prepared(one), Receipts(one), [True]

        def refuse(_: Exchange) -> None:
            if is_other[0]:
                raise LogHubError.of(
                    Code.SUBSCRIPTION_MISMATCH, "subscription readers is Failover, not Shared"
                )

        one.refuses = refuse
        program = start(one, processor, place, tmp_path)
        if place == "program":
            one.until(lambda: program.has_ended, "the end")
            assert "is Failover, not Shared" in str(program.error)
            return
        one.until(lambda: bool(program.call(lambda consumer: consumer.errors())), "the error")
        is_other[0] = False
        one.until(lambda: is_over(one), "all logs")
        program.end()
        assert set(processor.seen) == sent
