"""What a test of a consumer says that waits in vain: why the consumer has ended, or what it does."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from loghub.client.port import Credentials
from loghub_consumer import Consumer, ConsumerSettings, DeadLetterFolder, OnFailure
from tests.loghub_consumer.support import GROUP, PROJECT, Running, Seen, released, running, wait_for
from tests.support import STOP_GUARD_S, wait_until


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()  # a consumer configures it for the program, which other tests are not


def consumer(**changes: Any) -> Consumer:
    """One without a log service."""
    given: dict[str, Any] = {
        "endpoint": "http://127.0.0.1:1",
        "project": PROJECT,
        "credentials": Credentials(access_key_id="id", access_key_secret="secret"),
        "logstore": "ls-0",
        "consumer_group": GROUP,
        "consumer": "c-0",
    }
    return Consumer(ConsumerSettings(**given | changes), Seen().factory)


def test_a_consumer_that_has_ended_with_an_error_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = DeadLetterFolder(path=str(tmp_path / "file"))
    fails = consumer(on_failure=OnFailure(policy="DeadLetter", dead_letter=folder))
    with (
        pytest.raises(AssertionError, match="a consumer ended while a test waited for the end") as caught,
        running(fails),
    ):
        wait_for(lambda: False, "the end")
    assert isinstance(caught.value.__cause__, OSError)
    assert Running.active == []


def test_a_wait_in_vain_says_where_each_thread_is_and_what_the_consumer_does() -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def slow_key() -> Credentials:
        asked.set()
        assert goes_on.wait(STOP_GUARD_S)
        raise LookupError("no key")

    with (
        pytest.raises(AssertionError, match="waited 0 s for the end") as caught,
        running(consumer(credentials=slow_key)),
        released(goes_on),
    ):
        wait_until(lambda: not asked.wait(STOP_GUARD_S), "the end", guard_s=0.0)
    stacks, state = caught.value.__notes__
    assert "in slow_key" in stacks
    assert "ls-0: failure None\n  pulls: on duty None" in state
