"""A group that existed before its object: who decides whether it is adopted, and how users learn of it."""

import dataclasses
from typing import Any

import pytest

from loghub_operator.api.adoption import ANNOTATIONS, GroupRecord, read_record, record_annotations
from loghub_operator.api.conditions import ConditionType, GroupReason
from loghub_operator.api.status import OwnershipStatus, Status
from loghub_operator.model.actions import (
    Action,
    ApplyWorkers,
    DeleteGroup,
    EmitEvent,
    RecordGroupOrigin,
    UpdateGroup,
)
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    ObservedState,
    ObservedStatefulSet,
    ShardObserved,
)
from loghub_operator.plan.ownership import RECENT_S
from loghub_operator.plan.subject import desired_workers
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH, FOLDER, steps
from tests.loghub_operator.support.rounds import plan

SETTINGS = GroupSettings(timeout_s=30, order=False)
FOREIGN = ("billing-0", "java-7f")
SLS, SHANGHAI = "https://cn-hangzhou.log.aliyuncs.com", "https://cn-shanghai.log.aliyuncs.com"


def observed(
    *consumers: str, extensions: bool = True, saved_s: float | None = None, record: GroupRecord | None = None
) -> ObservedState:
    """The group exists. ``saved_s``: how long ago the first consumer saved a checkpoint."""
    step = next(
        one for one in steps(FOLDER / "first-start.yaml") if isinstance(one.observed.service, Available)
    )
    shard = ShardObserved(
        shard=0,
        state="not_alloc",
        checkpoint="MA==",
        checkpoint_unix_s=None if saved_s is None else EPOCH - saved_s,
        checkpoint_consumer=consumers[0] if consumers and saved_s is not None else "",
    )
    service = Available(group=SETTINGS, shards=(shard,), consumers=consumers if extensions else None)
    return dataclasses.replace(
        step.observed,
        at_unix_s=EPOCH,
        service=service,
        group_record=record,
        last_initial_shard=0,
        memory=NO_MEMORY,
    )


def _adopts(actions: tuple[Action, ...]) -> bool:
    changed = {type(one) for one in actions} & {RecordGroupOrigin, UpdateGroup, ApplyWorkers}
    return changed >= {RecordGroupOrigin, ApplyWorkers} if changed else False


def _synced(status: Status) -> tuple[str, str]:
    (one,) = (each for each in status.conditions if each.type == ConditionType.GROUP_SYNCED)
    return one.status, one.reason


def _events(actions: tuple[Action, ...]) -> list[str]:
    return [one.reason for one in actions if isinstance(one, EmitEvent)]


@pytest.mark.parametrize(
    ("policy", "consumers", "adopted"),
    [
        (None, (), True),
        (None, ("access-0",), False),  # another cluster may have the same object
        (None, FOREIGN, False),
        ("IfIdle", FOREIGN, False),
        ("Always", FOREIGN, True),
        ("Never", (), False),
        ("Never", ("access-0",), False),
    ],
)
def test_a_group_of_others_is_adopted_as_the_spec_says(
    policy: str | None, consumers: tuple[str, ...], adopted: bool
) -> None:
    found = resource({"adoption": policy} if policy else {}, uid="uid-1")
    planned = plan(found, observed(*consumers), EPOCH)
    assert _adopts(planned.actions) == adopted
    if not adopted:
        assert _synced(planned.status) == ("False", "AdoptionRefused")
        assert "AdoptionRefused" in _events(planned.actions)
        assert planned.status.phase == "Degraded"


@pytest.mark.parametrize(("saved_s", "adopted"), [(RECENT_S - 1, False), (RECENT_S + 1, True), (None, True)])
def test_without_a_list_of_consumers_recent_checkpoints_show_them(
    saved_s: float | None, adopted: bool
) -> None:
    planned = plan(resource(), observed("java-7f", extensions=False, saved_s=saved_s), EPOCH)
    assert _adopts(planned.actions) == adopted


@pytest.mark.parametrize("extensions", [True, False])
def test_consumers_named_like_workers_are_own_only_where_there_are_workers(extensions: bool) -> None:
    """Otherwise they are workers of an object of the same name, for example in another cluster."""
    found = observed("access-3", extensions=extensions, saved_s=1.0)
    pods = next(one for one in steps(FOLDER / "drift.yaml") if one.observed.workers).observed.workers
    assert pods
    assert not _adopts(plan(resource(), found, EPOCH).actions)
    with_pods = plan(resource(), dataclasses.replace(found, workers=pods), EPOCH)
    assert "AdoptionRefused" not in _events(with_pods.actions)


def _with_a_stateful_set(state: ObservedState, replicas: int) -> ObservedState:
    pods = next(one for one in steps(FOLDER / "drift.yaml") if one.observed.workers).observed.workers
    revision = desired_workers(resource(), state).revision
    return dataclasses.replace(
        state,
        worker_set=ObservedStatefulSet(replicas=replicas, revision=revision),
        workers=pods if replicas else (),
    )


@pytest.mark.parametrize("annotated", [True, False])
def test_workers_of_the_former_endpoint_are_no_consumers_at_the_new_one(annotated: bool) -> None:
    """There an object of the same name, of another cluster, may be live."""
    before = resource(status=with_status(), uid="uid-1")
    annotations = record_annotations(GroupRecord("Created", 3), before) if annotated else {}
    edited = resource(
        {"endpoint": "http://other.svc"}, status=with_status(), uid="uid-1", annotations=annotations
    )
    found = _with_a_stateful_set(observed("access-0", "access-1"), 2)
    planned = plan(edited, found, EPOCH)
    assert not any(isinstance(one, RecordGroupOrigin) for one in planned.actions)
    assert _synced(planned.status) == ("False", "AdoptionRefused")


def test_a_stateful_set_without_workers_shows_no_worker() -> None:
    """It stays when the workers of an object that may not adopt the group have left."""
    found = _with_a_stateful_set(observed("access-0"), 0)
    assert _synced(plan(resource(), found, EPOCH).status) == ("False", "AdoptionRefused")


@pytest.mark.parametrize("origin", ["Created", "Adopted"])
def test_a_recorded_group_is_not_adopted_again(origin: Any) -> None:
    found = observed(*FOREIGN, record=GroupRecord(origin, 0))
    planned = plan(resource({"adoption": "Never"}), found, EPOCH)
    assert any(isinstance(one, ApplyWorkers) for one in planned.actions)
    assert _synced(planned.status) == ("True", GroupReason.FOREIGN_CONSUMERS)
    assert _synced(plan(resource(), observed(record=GroupRecord(origin, 0)), EPOCH).status)[1] == "UpToDate"


def test_the_adoption_is_reported_once() -> None:
    first = plan(resource(), observed(), EPOCH)
    recorded = observed(record=GroupRecord("Adopted", 0))
    before = resource().model_copy(update={"status": first.status})
    second = plan(before, recorded, EPOCH + 1)
    third = plan(before.model_copy(update={"status": second.status}), recorded, EPOCH + 2)
    events = [_events(one.actions).count("Adopted") for one in (first, second, third)]
    assert events == [0, 1, 0]
    created = plan(resource(), observed(record=GroupRecord("Created", 0)), EPOCH)
    assert "Adopted" not in _events(created.actions)


def test_a_group_that_was_never_adopted_is_never_deleted() -> None:
    """Not even with the annotation for adopted ones."""
    found = resource(
        {"adoption": "Never", "deletionPolicy": "Delete"},
        annotations={"loghub.dev/delete-adopted-group": "true"},
        deletionTimestamp="2026-09-21T14:13:20Z",
    )
    planned = plan(found, observed(*FOREIGN), EPOCH)
    assert not any(isinstance(one, DeleteGroup) for one in planned.actions)


def with_status(origin: Any = "Created", endpoint: str = "embedded", uid: str = "uid-1") -> dict[str, Any]:
    ownership = OwnershipStatus(uid=uid, endpoint=endpoint, group="demo/access/access", last_initial_shard=3)
    return Status(group_origin=origin, ownership=ownership).to_dict()


def test_without_annotations_the_status_says_who_created_the_group() -> None:
    """`kubectl replace` removes them, and Argo CD with Replace=true."""
    assert read_record(resource(status=with_status(), uid="uid-1")) == GroupRecord("Created", 3)


@pytest.mark.parametrize("other", [{"uid": "uid-2"}, {"endpoint": SLS}, {"origin": None}])
def test_the_status_of_another_object_or_group_says_nothing(other: dict[str, Any]) -> None:
    assert read_record(resource(status=with_status(**other), uid="uid-1")) is None


def test_an_annotation_goes_before_the_status() -> None:
    adopted = record_annotations(GroupRecord("Adopted", 1), resource(uid="uid-1"))
    assert read_record(resource(status=with_status(), uid="uid-1", annotations=adopted)) == GroupRecord(
        "Adopted", 1
    )
    edited = {**adopted, "loghub.dev/group-origin": "x"}
    assert read_record(resource(status=with_status(), uid="uid-1", annotations=edited)) is None


def test_removed_annotations_are_written_again() -> None:
    found = resource(status=with_status(), uid="uid-1")
    state = dataclasses.replace(observed(record=GroupRecord("Created", 0)), record_annotated=False)
    planned = plan(found, state, EPOCH)
    assert RecordGroupOrigin(GroupRecord("Created", 0)) in planned.actions
    assert "Adopted" not in _events(planned.actions)


def test_a_group_at_another_endpoint_is_left_behind_with_an_event_and_a_record() -> None:
    edited = resource({"endpoint": "http://other.svc"}, status=with_status(), uid="uid-1")
    planned = plan(edited, observed(), EPOCH)
    (event,) = [
        one for one in planned.actions if isinstance(one, EmitEvent) and one.reason == "ConsumerGroupOrphaned"
    ]
    assert (event.type, "embedded" in event.message) == ("Warning", True)
    annotations = record_annotations(GroupRecord("Adopted", 0), edited)
    assert annotations["loghub.dev/groups-left-behind"] == "embedded"
    after = edited.model_copy(update={"status": planned.status})
    assert "ConsumerGroupOrphaned" not in _events(plan(after, observed(), EPOCH + 1).actions)
    # The record is kept by everything that writes the annotations, and grows by the next edit.
    again = resource(
        {"endpoint": "http://third.svc"},
        status=with_status(endpoint="http://other.svc"),
        uid="uid-1",
        annotations=annotations,
    )
    kept = record_annotations(GroupRecord("Adopted", 0), again)
    assert kept["loghub.dev/groups-left-behind"] == "embedded,http://other.svc"
    assert set(kept) <= set(ANNOTATIONS)


def test_another_spelling_of_the_endpoint_leaves_nothing_behind() -> None:
    edited = resource(
        {"endpoint": "http://cn-hangzhou-intranet.log.aliyuncs.com"},
        status=with_status(endpoint=SLS),
        uid="uid-1",
    )
    planned = plan(edited, observed(record=GroupRecord("Created", 0)), EPOCH)
    assert "ConsumerGroupOrphaned" not in _events(planned.actions)
