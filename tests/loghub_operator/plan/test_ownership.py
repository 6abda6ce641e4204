"""Who owns a consumer group that several objects name: who has proven access to it first."""

import dataclasses

import pytest

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.conditions import ConditionType, rfc3339
from loghub_operator.api.status import Status
from loghub_operator.model.actions import Action, ApplyWorkers, CreateGroup, DeleteGroup
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    Peer,
    ServiceErrorReason,
    Unavailable,
)
from loghub_operator.plan.ownership import REFUSED_FOR_S
from tests.loghub_operator.support.golden import EPOCH, FOLDER, Step, steps
from tests.loghub_operator.support.rounds import plan

EARLIER, LATER = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
REFUSED = Unavailable(reason=ServiceErrorReason.AUTHENTICATION_FAILED, message="the access key was rejected")
NO_KEY = Unavailable(reason=ServiceErrorReason.CREDENTIALS_MISSING, message="there is no Secret")
SILENT = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="no answer")


def peer(*, created: str = EARLIER, access_since: str = "", leaving: bool = False) -> Peer:
    return Peer(created=created, namespace="other", name="theirs", access_since=access_since, leaving=leaving)


def _without_group() -> Step:
    """The log service answers, and the group does not exist yet."""
    return next(
        one for one in steps(FOLDER / "first-start.yaml") if isinstance(one.observed.service, Available)
    )


class Life:
    """One object, reconciled again and again with the status that it wrote."""

    def __init__(self, status: Status | None = None) -> None:
        step = _without_group()
        resource = step.resource.model_copy(update={"status": status or Status()})
        metadata = resource.metadata.model_copy(update={"creation_timestamp": "2021-01-01T00:00:00Z"})
        self.resource = resource.model_copy(update={"metadata": metadata})
        self.observed = dataclasses.replace(step.observed, memory=NO_MEMORY)
        self.answer = self.observed.service
        self.now = EPOCH

    def reconcile(
        self, *peers: Peer, service: LogServiceObserved | None = None, after_s: float = 1.0
    ) -> tuple[Action, ...]:
        self.now += after_s
        observed: ObservedState = dataclasses.replace(
            self.observed, peers=peers, service=service or self.answer, at_unix_s=self.now
        )
        planned = plan(self.resource, observed, self.now)
        self.resource = self.resource.model_copy(update={"status": planned.status})
        self.observed = dataclasses.replace(self.observed, memory=planned.memory)
        return planned.actions

    def reason(self, kind: ConditionType = ConditionType.GROUP_SYNCED) -> str:
        return next(one.reason for one in self.resource.status.conditions if one.type == kind)

    @property
    def access_since(self) -> str | None:
        ownership = self.resource.status.ownership
        return ownership.access_since if ownership else None

    def restarted(self) -> "Life":
        """The same object under another operator, which knows only what is stored."""
        life = Life(status=self.resource.status)
        life.now = self.now
        return life


def _acts(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(one, CreateGroup | ApplyWorkers) for one in actions)


def test_an_older_object_without_access_does_not_take_the_group() -> None:
    life = Life()
    assert life.reconcile(peer()) == ()  # the proof is stored first
    assert life.access_since is not None
    assert _acts(life.reconcile(peer()))
    assert life.reason() != "OwnershipConflict"


def test_an_object_alone_proves_access_and_acts_in_one_reconcile() -> None:
    life = Life()
    assert _acts(life.reconcile())
    assert life.access_since is not None


def test_of_two_objects_with_access_the_first_to_prove_it_owns_the_group() -> None:
    life = Life()
    life.reconcile()
    assert life.reconcile(peer(access_since=LATER))
    assert life.reason() != "OwnershipConflict"
    life.reconcile(peer(created=LATER, access_since=EARLIER))
    assert life.reason() == "OwnershipConflict"


def test_access_proven_in_the_same_second_is_decided_by_age() -> None:
    life = Life()
    life.reconcile()
    since = life.access_since or ""
    life.reconcile(peer(created=EARLIER, access_since=since))
    assert life.reason() == "OwnershipConflict"
    life.reconcile(peer(created=LATER, access_since=since))
    assert life.reason() != "OwnershipConflict"


@pytest.mark.parametrize("refusal", [REFUSED, NO_KEY])
def test_an_owner_whose_key_is_refused_for_long_yields_and_does_not_take_the_group_back(
    refusal: Unavailable,
) -> None:
    life, other = Life(), peer(access_since=LATER)
    life.reconcile()
    life.reconcile(other, service=refusal)
    life.reconcile(other, service=refusal, after_s=REFUSED_FOR_S - 1)
    assert life.access_since is not None
    life.reconcile(other, service=refusal, after_s=2)
    assert life.access_since is None
    life.reconcile(other, service=refusal)
    assert life.reason() == "OwnershipConflict"
    other = peer(access_since="2026-09-21T00:00:00Z")
    for _ in range(3):
        life.reconcile(other)
        assert life.reason() == "OwnershipConflict"


def test_a_clock_that_was_set_back_keeps_no_owner_whose_key_is_refused() -> None:
    life, other = Life(), peer(access_since=LATER)
    life.reconcile()
    life.reconcile(other, service=REFUSED, after_s=3600)
    life.reconcile(other, service=REFUSED, after_s=-3600)
    assert life.access_since is not None
    life.reconcile(other, service=REFUSED, after_s=REFUSED_FOR_S + 1)
    assert life.access_since is None


def test_a_short_refusal_and_a_long_outage_change_no_owner() -> None:
    life, other = Life(), peer(access_since=LATER)
    life.reconcile()
    since = life.access_since
    for _ in range(20):
        life.reconcile(other, service=REFUSED, after_s=REFUSED_FOR_S / 2)
        life.reconcile(other)
    life.reconcile(other, service=SILENT)
    life.reconcile(other, service=SILENT, after_s=100 * REFUSED_FOR_S)
    assert life.access_since == since


def test_the_owner_survives_a_restart_of_the_operator() -> None:
    life, other = Life(), peer(access_since=LATER)
    life.reconcile()
    restarted = life.restarted()
    restarted.reconcile(other, service=SILENT)
    restarted.reconcile(other)
    assert (restarted.access_since, restarted.reason()) == (life.access_since, life.reason())


def test_a_proof_of_another_object_or_group_is_none() -> None:
    """As in a restored backup with its status, or after an edit of the endpoint."""
    life = Life()
    life.reconcile()
    metadata = life.resource.metadata.model_copy(update={"uid": "uid-2"})
    life.resource = life.resource.model_copy(update={"metadata": metadata})
    assert life.reconcile(peer()) == ()
    life.reconcile(peer(access_since=EARLIER))
    assert life.reason() == "OwnershipConflict"


def test_annotations_prove_nothing() -> None:
    """The author of the object can write them."""
    life = Life()
    life.observed = dataclasses.replace(life.observed, group_record=GroupRecord("Created", 1))
    life.reconcile(peer(access_since=LATER), service=REFUSED)
    assert (life.access_since, life.reason()) == (None, "OwnershipConflict")


@pytest.mark.parametrize(("their_access", "deleted"), [("", True), (LATER, False)])
def test_an_object_without_access_keeps_no_group_from_deletion(their_access: str, deleted: bool) -> None:
    step = next(
        one
        for one in steps(FOLDER / "delete-with-group.yaml")
        if any(action["action"] == "DeleteGroup" for action in one.actions)
    )
    observed = dataclasses.replace(step.observed, peers=(peer(access_since=their_access),))
    planned = plan(step.resource, observed, step.now)
    assert any(isinstance(one, DeleteGroup) for one in planned.actions) == deleted


def test_only_the_operator_learns_the_owner_of_another_namespace() -> None:
    life = Life()
    life.reconcile()
    owner = peer(access_since=EARLIER)
    life.reconcile(owner)
    assert "theirs" not in str(life.resource.status)
    planned = plan(life.resource, dataclasses.replace(life.observed, peers=(owner,)), life.now)
    assert planned.owner == owner


@pytest.mark.parametrize("behind_s", [0.0, 1.0, 3600.0])
def test_a_clock_that_is_behind_takes_no_group(behind_s: float) -> None:
    """Two operators lead one after the other, on nodes whose clocks differ; the owner is the younger one."""
    first = rfc3339(EPOCH)
    life = Life()
    life.now = EPOCH - behind_s
    for _ in range(3):
        assert not _acts(life.reconcile(peer(created=LATER, access_since=first), after_s=0.0))
    assert life.access_since is not None
    assert life.access_since > first
    assert life.reason() == "OwnershipConflict"


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "yesterday"])
def test_a_proof_of_another_with_a_strange_time_stops_nothing(time: str) -> None:
    life = Life()
    life.reconcile(peer(access_since=time))
    assert life.access_since is not None
