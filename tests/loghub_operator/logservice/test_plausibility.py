"""Whatever answers at an endpoint, the object gets a status, and its deletion ends."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loghub.client.port import CheckpointInfo, GroupInfo, LogHub
from loghub.wire import cursor as wire_cursor
from loghub_operator.logservice.group_state import HIGHEST_SHARD, MAX_SHARDS, MAX_TEXT
from loghub_operator.model.actions import RemoveFinalizer
from loghub_operator.model.observed import ServiceErrorReason
from loghub_operator.plan.deletion import plan_deletion
from loghub_operator.plan.subject import subject_of
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.logservice.test_group_state import WithoutExtensions
from tests.loghub_operator.support.availability import available, unavailable
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH, FOLDER, steps
from tests.loghub_operator.support.observing import service_observed
from tests.loghub_operator.support.rounds import plan
from tests.support import HandClock

DELETED = "2026-01-01T00:00:00Z"
LONG = "x" * (MAX_TEXT + 1)
Change = Callable[[Any], Any]


def each(**changes: Any) -> Change:
    return lambda answer: tuple(replace(one, **changes) for one in answer)


def many(answer: Any) -> Any:
    return tuple(replace(answer[0], shard=number) for number in range(MAX_SHARDS + 1))


LISTS: dict[str, Change] = {
    "twice": each(shard=0),
    "negative": each(shard=-1),
    "too large": each(shard=HIGHEST_SHARD + 1),
    "too many": many,
}
REPORTS: dict[str, Change] = LISTS | {
    "parents": each(parents=(-1,)),
    "holder": each(holder=LONG),
    "next holder": each(next_holder=LONG),
    "checkpoint": each(checkpoint=LONG, end_cursor=""),
    "lag": each(lag_logs=2**63),
    "lag in seconds": each(lag_s=1e300),
}


@pytest.fixture
def client() -> LogHub:
    client = MemoryServer(HandClock(EPOCH)).client("demo")
    client.create_project()
    client.create_logstore("access", shards=2)
    return client


def check(client: Any) -> None:
    """It is not available, and an object with this endpoint gets a status, and is released."""
    found, clock = resource({"adoption": "Always"}), HandClock(EPOCH)
    service = unavailable(service_observed(client, found, clock=clock, silent=["access-0"]))
    assert service.reason is ServiceErrorReason.REQUEST_REJECTED
    assert LONG not in service.message
    first = next(iter(steps(FOLDER / "first-start.yaml")))
    observed = replace(first.observed, service=service, has_finalizer=True)
    assert plan(found, observed, EPOCH).status.phase == "Pending"
    leaving = resource(deletionTimestamp=DELETED)
    assert RemoveFinalizer() in plan_deletion(subject_of(leaving, observed), EPOCH).actions


@pytest.mark.parametrize(("extensions", "group"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("change", LISTS.values(), ids=LISTS)
def test_a_list_of_shards_that_no_log_service_gives_is_refused(
    client: LogHub, monkeypatch: pytest.MonkeyPatch, change: Change, *, extensions: bool, group: bool
) -> None:
    """An extension reports the shards of a group, so its list counts only without one."""
    if group:
        client.create_group("access", GroupInfo(name="access", timeout_s=30, order=False))
    answer = change(client.list_shards("access"))
    monkeypatch.setattr(client, "list_shards", lambda _: answer)
    check(client if extensions else WithoutExtensions(client))


@pytest.mark.parametrize("change", REPORTS.values(), ids=REPORTS)
def test_a_report_of_shards_that_no_log_service_gives_is_refused(
    client: LogHub, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    client.create_group("access", GroupInfo(name="access", timeout_s=30, order=False))
    status = client.group_status("access", "access")
    answer = replace(status, shards=change(status.shards))
    monkeypatch.setattr(client, "group_status", lambda *_: answer)
    check(client)


@pytest.mark.parametrize("changes", [{"consumer": LONG}, {"cursor": " " * MAX_TEXT + "MQ=="}], ids=str)
def test_a_checkpoint_that_no_log_service_has_is_refused(
    client: LogHub, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    client.create_group("access", GroupInfo(name="access", timeout_s=30, order=False))
    saved = CheckpointInfo(shard=0, cursor=wire_cursor.encode(1), updated_unix_us=1, consumer="access-0")
    monkeypatch.setattr(client, "get_checkpoints", lambda *_: (replace(saved, **changes),))
    check(WithoutExtensions(client))


def test_the_largest_plausible_answer_is_accepted(client: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = many(client.list_shards("access"))[1:]
    monkeypatch.setattr(client, "list_shards", lambda _: answer)
    service = available(service_observed(client, resource(), clock=HandClock(EPOCH)))
    assert len(service.shards) == MAX_SHARDS
