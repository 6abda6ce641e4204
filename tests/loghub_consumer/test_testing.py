"""`loghub_consumer.testing`: what a user's own tests of a processor see, and the service of the fixture."""

import logging
import threading
from collections.abc import Iterator

import pytest
import structlog

from loghub.extras import MissingPackageError
from loghub.wire.loggroup import decode
from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    LogBatch,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    Tracker,
    UnavailableError,
    fan_out,
    service_process,
)
from loghub_consumer.given_logs import log_groups
from loghub_consumer.testing import ServiceProcess, run_processor


@pytest.fixture(autouse=True)
def _plain_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def lines(logs: LogBatch) -> list[str]:
    return [str(log.get("line")) for group in logs.groups for log in group.logs]


class Squares(Processor):
    """Fails for what is no number, and saves each batch."""

    def initialize(self, shard: int) -> None:
        self.calls: list[tuple[list[str], int]] = []
        self.squares: list[int] = []

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        self.calls.append((lines(logs), logs.delivery))
        self.squares += [int(line) ** 2 for line in lines(logs)]
        tracker.save()


def test_a_processor_gets_the_logs_in_order_and_what_it_made_of_them_is_there() -> None:
    run = run_processor(Squares, ["1", "2", ["3", "4"]], max_logs=2)
    assert run.processor.calls == [(["1", "2"], 1), (["3", "4"], 1)]
    assert run.processor.squares == [1, 4, 9, 16]
    assert (run.saved, run.rejected, run.unfinished, run.errors) == (3, (), (), ())


def test_a_log_for_which_process_raises_is_found_and_rejected_and_the_others_are_processed() -> None:
    run = run_processor(Squares, ["1", "two", "3"], max_attempts=2)
    assert run.processor.squares == [1, 9]
    (rejected,) = run.rejected
    assert (rejected.log, rejected.number) == ({"line": "two"}, 1)
    assert (rejected.reason, rejected.attempts) == ("ProcessorFailed", 2)
    assert rejected.message.startswith("ValueError: invalid literal")
    assert all(isinstance(error, ValueError) for error in run.errors)
    assert run.saved == 3


class Slow(Processor):
    """Refuses one log for an hour, and another one for good."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                if log.get("line") == "later" and logs.delivery < 3:
                    tracker.nack(log, delay_s=500)
                if log.get("line") == "never":
                    tracker.reject(log, reason="it is no address")
        tracker.save()


def test_refused_logs_come_again_at_once_and_the_pauses_are_counted() -> None:
    run = run_processor(Slow, ["first", "later", "never"])
    (rejected,) = run.rejected
    assert (rejected.log, rejected.reason) == ({"line": "never"}, "Rejected")
    assert rejected.message == "it is no address"
    assert run.waited_s == pytest.approx(1_000, abs=1)
    assert (run.saved, run.unfinished) == (3, ())


class Away(Processor):
    async def process(self, logs: LogBatch, tracker: Tracker) -> None:
        raise UnavailableError("the database is away")


class Paused(Processor):
    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        tracker.pause()


@pytest.mark.parametrize(("processor", "left"), [(Away, (0, 1)), (Paused, (1,))])
def test_what_would_wait_forever_in_a_consumer_is_unfinished(
    processor: type[Processor], left: tuple[int, ...]
) -> None:
    run = run_processor(processor, ["1", "2"], max_logs=1)
    assert (run.unfinished, run.rejected, run.saved) == (left, (), 0)


def test_a_returned_cursor_and_a_seek_are_followed() -> None:
    class Twice(Processor):
        seen: list[str]

        def initialize(self, shard: int) -> None:
            self.seen = []

        def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
            self.seen += lines(logs)
            return logs.begin_cursor if len(self.seen) == 2 else None

    assert run_processor(Twice, ["1", "2"]).processor.seen == ["1", "2", "1", "2"]


def test_threads_of_fan_out_are_waited_for_and_their_logs_rejected_alone() -> None:
    begun = threading.Barrier(2, timeout=120)
    handled = []

    def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        begun.wait()  # two threads at once
        if log.get("line") == "bad":
            raise ValueError("bad")
        handled.append(log.get("line"))

    factory = fan_out(handle, key=lambda log, _: str(log.get("line")), threads=2, max_attempts=1)
    run = run_processor(factory, ["good", "bad"], acknowledge="log")
    assert handled == ["good"]
    assert [(one.log["line"], one.message) for one in run.rejected] == [("bad", "ValueError: bad")]
    with pytest.raises(ValueError, match="fan_out needs acknowledge='log'"):
        run_processor(factory, [])


def test_an_error_of_initialize_or_what_ends_a_consumer_ends_the_test() -> None:
    class Refusing(Paused):
        def initialize(self, shard: int) -> None:
            raise ConnectionError("no database")

    class Ending(Processor):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            raise SystemExit(3)

    with pytest.raises(ConnectionError, match="no database"):
        run_processor(Refusing, ["1"])
    with pytest.raises(SystemExit):
        run_processor(Ending, ["1"])
    with pytest.raises(TypeError, match="the factory returned str, not"):
        run_processor(str, ["1"])  # type: ignore[type-var]


def test_a_run_that_does_not_end_says_which_logs_are_left() -> None:
    class Forgetful(Processor):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            """Acknowledges nothing."""

    with pytest.raises(TimeoutError, match=r"guard_s, 0 s, and the log groups \(0, 1\) are not done"):
        run_processor(Forgetful, ["1", "2"], acknowledge="log", guard_s=0.0)


def test_a_log_is_given_as_loghub_pull_prints_it() -> None:
    pulled = {
        "__time__": 7,
        "__topic__": "t",
        "__source__": "s",
        "__tag__:host": "h",
        "__shard__": 3,
        "__cursor__": "MA==",
        "__index__": 0,
        "__field__:__topic__": "a field",
        "line": "x",
    }
    group = decode(log_groups([pulled])[0])
    assert (group.topic, group.source, group.tags) == ("t", "s", (("host", "h"),))
    assert [(log.time, log.contents) for log in group.logs] == [
        (7, (("__topic__", b"a field"), ("line", b"x")))
    ]


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        ("one", "give a list of logs"),
        ([{"status": 200}], "the field status is 200; a value of a log is a text, such as '200'"),
        ([3], "3 is no log: give a dictionary, a text, or a list"),
        ([[]], "is no log: give a dictionary, a text, or a list"),
        ([[["x"]]], "is no log: give a dictionary or a text"),
        ([{"__time__": "now"}], "__time__ is 'now'; it must be a whole number of unix seconds"),
        ([[{"__topic__": "a"}, "b"]], "share topic, source and tags"),
    ],
)
def test_what_is_no_log_is_refused_with_what_to_give(logs: list[object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        log_groups(logs)  # type: ignore[arg-type]


@pytest.mark.long
def test_the_fixture_is_a_service_for_whole_programs(loghub_service: ServiceProcess) -> None:
    loghub_service.create_logstore("numbers", shards=2)
    loghub_service.create_logstore("others")  # in the same project
    loghub_service.put("numbers", ["1", {"line": "2", "__topic__": "t"}])
    loghub_service.put("numbers", ["3"], shard=1)
    assert loghub_service.read("numbers") == [{"line": "1"}, {"line": "2"}, {"line": "3"}]
    assert loghub_service.read("others") == []
    with pytest.raises(ValueError, match=r"tests/others has no shard 1; it has \[0\]"):
        loghub_service.put("others", ["4"], shard=1)

    taken: list[str] = []  # by the threads of two shards

    class Taking(Processor):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            taken.extend(lines(logs))
            tracker.save()
            if len(taken) == 3:
                consumer.wakeup()

    consumer = Consumer(
        ConsumerSettings(
            endpoint=loghub_service.endpoint,
            project="tests",
            logstore="numbers",
            credentials=loghub_service.credentials,
            consumer_group="sums",
            consumer="sum-0",
            create_group=True,
        ),
        Taking,
    )
    consumer.run()
    assert sorted(taken) == ["1", "2", "3"]


def test_without_the_distribution_of_the_service_the_fixture_says_what_to_install(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(distribution: str, what: str) -> None:
        raise MissingPackageError(distribution, what=what, missing=distribution)

    monkeypatch.setattr(service_process, "require", missing)
    with pytest.raises(MissingPackageError, match=r"tests needs loghub-service.*pip install"):
        ServiceProcess(tmp_path_factory.mktemp("none")).start()


def test_the_reason_of_a_failure_is_in_the_log_of_the_test(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run_processor(Squares, ["two"], max_attempts=1)
    assert "invalid literal for int() with base 10: 'two'" in caplog.text
