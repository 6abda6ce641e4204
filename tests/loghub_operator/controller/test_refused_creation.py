"""A group whose creation was refused is nobody's yet: who creates it later keeps it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loghub.client.port import GroupInfo
from loghub.clock import SystemClock
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException
from loghub_operator.api import LogHubConsumerGroup, parse_stored
from loghub_operator.api.adoption import GroupRecord, read_record
from loghub_operator.clients.kube import CONSUMER_GROUP, Kind
from loghub_operator.model.actions import Action, ActionRefused, DeleteGroup
from loghub_operator.settings import Settings
from tests.loghub_operator.controller.test_first_reconcile import Clients, Turns
from tests.loghub_operator.support.examples import Document, merge
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.wiring import observer_and_applier

THEIRS = GroupInfo(name="access", timeout_s=77, order=False)
NOT_DONE = (
    LogHubError.of(Code.UNAUTHORIZED),
    LogHubError.of(Code.CONSUMER_GROUP_ALREADY_EXIST),
    EndpointUnreachable("http://x", "refused", definite=True),
)
PERHAPS_DONE = (
    LogHubError.of(Code.INTERNAL_SERVER_ERROR),
    EndpointUnreachable("http://x", "timeout", definite=False),
)


class Cluster(Turns):
    """Answers at once, and counts what is written to the object."""

    def __init__(self, spec: Document) -> None:
        super().__init__()
        self.writes = 0
        merge(self.objects[CONSUMER_GROUP, "access"], {"spec": spec})

    async def _answered(self) -> None:
        pass

    async def apply(self, given: Document, *, subresource: str = "") -> Document:
        self.writes += given["kind"] == "LogHubConsumerGroup"
        return await super().apply(given, subresource=subresource)

    async def patch(self, kind: Kind, _: str, name: str, given: Document) -> None:
        merge(self.objects[kind, name], given)


class Life:
    """One object, reconciled step by step; ``refusal`` is raised instead of creating the group."""

    def __init__(self, spec: Document, refusal: Exception | None) -> None:
        self.refusal = refusal
        self.cluster = Cluster(spec)
        self.clients: Any = Clients(self._on_create)
        settings, api = Settings(embedded_endpoint="http://127.0.0.1:1"), self.cluster
        wired: Callable[..., Any] = observer_and_applier
        self.observer, self.applier = wired(api, self.clients, settings=settings, clock=SystemClock())

    def _on_create(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def resource(self) -> LogHubConsumerGroup:
        return parse_stored(self.cluster.objects[CONSUMER_GROUP, "access"])

    def round(self, **metadata: str) -> tuple[tuple[Action, ...], str]:
        """The actions, and the reason of GroupSynced."""
        merge(self.cluster.objects[CONSUMER_GROUP, "access"], {"metadata": metadata})
        found = self.resource()
        observed = asyncio.run(self.observer.observe(found))
        planned = plan(found, observed, observed.at_unix_s)
        try:
            for action in planned.actions:
                carried = self.applier.carry_out(found, action, group_record=observed.group_record)
                asyncio.run(carried)
        except (LogHubException, ActionRefused):
            if self.refusal is None:
                raise
        reasons = {one.type: one.reason for one in planned.status.conditions}
        return planned.actions, reasons["GroupSynced"]

    @property
    def origin(self) -> str | None:
        record = read_record(self.resource())
        return None if record is None else record.origin


@pytest.mark.parametrize("refusal", NOT_DONE, ids=str)
def test_a_group_of_others_is_neither_taken_nor_deleted_after_a_refusal(refusal: Exception) -> None:
    life = Life({"deletionPolicy": "Delete"}, refusal)
    life.round()
    assert life.origin == "Refused"
    writes = life.cluster.writes
    life.round()
    assert life.cluster.writes == writes, "each attempt would wake the next one"
    life.clients._client.create_group("access", THEIRS)
    life.clients._client.heartbeat("access", "access", consumer="billing-0", held=())
    assert life.round()[1] == "AdoptionRefused"
    actions, _ = life.round(deletionTimestamp="2026-01-01T00:00:00Z")
    assert not any(isinstance(one, DeleteGroup) for one in actions)
    assert life.clients._client.list_groups("access") == (THEIRS,)


@pytest.mark.parametrize("refusal", NOT_DONE, ids=str)
def test_a_group_is_created_and_recorded_once_nothing_refuses_it(refusal: Exception) -> None:
    life = Life({}, refusal)
    life.round()
    life.refusal = None
    life.round()
    assert read_record(life.resource()) == GroupRecord("Created", 1)
    assert [one.name for one in life.clients._client.list_groups("access")] == ["access"]
    assert life.round()[1] == "UpToDate"


@pytest.mark.parametrize("refusal", NOT_DONE, ids=str)
def test_an_idle_group_of_others_is_adopted_after_a_refusal(refusal: Exception) -> None:
    life = Life({}, refusal)
    life.round()
    life.clients._client.create_group("access", THEIRS)
    life.round()
    assert life.origin == "Adopted"


@pytest.mark.parametrize("failure", PERHAPS_DONE, ids=str)
def test_a_group_that_was_perhaps_created_remains_the_objects_own(failure: Exception) -> None:
    """Its answer was lost, most likely."""
    life = Life({"adoption": "Never"}, failure)
    life.round()
    assert life.origin == "Created"
    life.clients._client.create_group("access", THEIRS)
    life.refusal = None
    assert life.round()[1] in ("UpToDate", "Updating")
