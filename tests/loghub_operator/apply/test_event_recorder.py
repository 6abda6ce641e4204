"""Events that repeat are one object with a count, and each group has a bounded number of writes."""

import asyncio
from typing import Any

import pytest

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.apply.event_recorder import BURST, MAX_GROUPS, REFILL_S, EventRecorder
from loghub_operator.clients.kube import Kind, KubeError
from loghub_operator.model.actions import EmitEvent
from tests.loghub_operator.support.examples import Document, resource

DOWN = EmitEvent(type="Warning", reason="EndpointUnreachable", message="no answer")
UP = EmitEvent(type="Normal", reason="UpToDate", message="consumer group access is up to date")
GROUP = resource(uid="uid-1")


class Events:
    """The API server's events, and the time."""

    def __init__(self) -> None:
        self.stored: dict[str, Document] = {}
        self.writes = 0
        self.now = 0.0
        self.error: KubeError | None = None

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return 1_790_000_000.0 + self.now

    def recorder(self, instance: str = "operator-0") -> EventRecorder:
        parts: Any = self
        return EventRecorder(kube=parts, clock=parts, instance=instance)

    async def get(self, _: Kind, __: str, name: str) -> Document | None:
        return self.stored.get(name)

    async def create(self, document: Document) -> Document:
        self.writes += 1
        if self.error is not None:
            raise self.error
        name = document["metadata"]["name"]
        if name in self.stored:
            raise KubeError(409, "AlreadyExists", name)
        assert document.get("series", {"count": 2})["count"] >= 2, "else the API server refuses it"
        self.stored[name] = document
        return document

    async def patch(self, _: Kind, __: str, name: str, patch: Document) -> Document | None:
        self.writes += 1
        if name not in self.stored:
            return None
        assert patch.keys() == {"series"}, "nothing else may change"
        assert patch["series"]["count"] >= 2
        self.stored[name] |= patch
        return self.stored[name]

    def counts(self) -> dict[str, int]:
        """How often each reason happened, as a reader sees it."""
        return {one["reason"]: one.get("series", {}).get("count", 1) for one in self.stored.values()}


def play(*, on: Events, recorder: EventRecorder, group: LogHubConsumerGroup = GROUP, **events: int) -> None:
    """So many times each, in turn, every ten seconds."""
    kinds = {"down": DOWN, "up": UP}

    async def story() -> None:
        for _ in range(max(events.values())):
            for kind in events:
                await recorder.record(group, kinds[kind])
                on.now += 10.0

    asyncio.run(story())


def test_a_repeated_event_is_one_object_with_a_count() -> None:
    on = Events()
    play(on=on, recorder=on.recorder(), down=1)
    (event,) = on.stored.values()
    assert (event["reportingInstance"], event["reportingController"]) == (
        "operator-0",
        "loghub.dev/loghub-operator",
    )
    assert "series" not in event
    play(on=on, recorder=on.recorder(), down=1)
    assert on.counts() == {"EndpointUnreachable": 2}
    (event,) = on.stored.values()
    assert event["series"]["lastObservedTime"] > event["eventTime"]


def test_another_text_is_another_event() -> None:
    """The API server lets nothing but the series of an event change."""
    on = Events()
    recorder = on.recorder()
    for message in ("no answer", "no such host"):
        event = EmitEvent(type="Warning", reason="EndpointUnreachable", message=message)
        asyncio.run(recorder.record(GROUP, event))
    assert len(on.stored) == 2


def test_an_endpoint_that_comes_and_goes_for_an_hour_is_two_objects_and_few_writes() -> None:
    on = Events()
    play(on=on, recorder=on.recorder(), down=180, up=180)
    assert on.now == 3600.0
    assert len(on.stored) == 2
    assert on.writes <= BURST + 3600.0 / REFILL_S
    counted = on.counts()
    on.now += 2 * REFILL_S
    play(on=on, recorder=on.recorder(), down=1)  # another process: it knows only what is stored
    assert on.counts()["EndpointUnreachable"] == counted["EndpointUnreachable"] + 1


def test_what_was_not_written_is_counted_with_the_next_write() -> None:
    on = Events()
    recorder = on.recorder()
    play(on=on, recorder=recorder, down=100)
    on.now += REFILL_S
    play(on=on, recorder=recorder, down=1)
    assert on.counts() == {"EndpointUnreachable": 101}


def test_each_group_has_its_own_budget() -> None:
    on = Events()
    recorder = on.recorder()
    play(on=on, recorder=recorder, down=100)
    play(on=on, recorder=recorder, group=resource(uid="uid-2"), up=1)
    assert on.counts()["UpToDate"] == 1


def test_an_event_that_has_expired_is_created_again() -> None:
    on = Events()
    recorder = on.recorder()
    play(on=on, recorder=recorder, down=3)
    on.stored.clear()
    play(on=on, recorder=recorder, down=2)
    assert on.counts() == {"EndpointUnreachable": 2}


def test_another_operator_has_events_of_its_own() -> None:
    on = Events()
    play(on=on, recorder=on.recorder("operator-0"), down=1)
    play(on=on, recorder=on.recorder("operator-1"), down=1)
    assert {one["reportingInstance"] for one in on.stored.values()} == {"operator-0", "operator-1"}


def test_a_rejected_event_is_counted_once_it_can_be_written() -> None:
    on = Events()
    recorder = on.recorder()
    on.error = KubeError(403, "Forbidden", "the namespace is being terminated")
    for _ in range(3):
        with pytest.raises(KubeError):
            asyncio.run(recorder.record(GROUP, DOWN))
    on.error = None
    asyncio.run(recorder.record(GROUP, DOWN))
    asyncio.run(recorder.record(GROUP, DOWN))
    assert on.counts() == {"EndpointUnreachable": 5}


@pytest.mark.long
def test_memory_is_bounded() -> None:
    on = Events()
    recorder = on.recorder()

    async def record() -> None:
        for number in range(MAX_GROUPS + 10):
            metadata = GROUP.metadata.model_copy(update={"uid": f"uid-{number}"})
            await recorder.record(GROUP.model_copy(update={"metadata": metadata}), DOWN)
        for number in range(1000):
            event = EmitEvent(type="Normal", reason="X", message=str(number))
            await recorder.record(GROUP, event)

    asyncio.run(record())
    assert recorder.remembered <= MAX_GROUPS + 100
