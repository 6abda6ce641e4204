"""`plan` decides as recorded in the series, and keeps the invariants that hold for every step."""

import dataclasses

import pytest

from loghub_operator.api.conditions import ConditionType
from loghub_operator.model.actions import (
    ApplyWorkers,
    DeleteGroup,
    DrainWorker,
    RemoveFinalizer,
    RemoveWorkers,
    UpdateGroup,
)
from loghub_operator.model.observed import Available, GroupSettings
from loghub_operator.model.revision import Revision
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.golden import FOLDER, Step, of_each_step, recorded, reported, steps
from tests.loghub_operator.support.rounds import plan


@of_each_step
def test_each_recorded_step_gives_the_recorded_plan(step: Step) -> None:
    planned = plan(step.resource, step.observed, step.now, drift=step.drift)
    assert [recorded(action) for action in planned.actions] == list(step.actions)
    assert reported(planned.status) == step.status


@of_each_step
def test_every_condition_is_always_reported(step: Step) -> None:
    conditions = plan(step.resource, step.observed, step.now, drift=step.drift).status.conditions
    assert sorted(one.type for one in conditions) == sorted(ConditionType)


@of_each_step
def test_the_same_observation_gives_the_same_plan(step: Step) -> None:
    assert plan(step.resource, step.observed, step.now, drift=step.drift) == plan(
        step.resource, step.observed, step.now, drift=step.drift
    )


@of_each_step
def test_an_unavailable_log_service_leaves_the_workers_as_they_are(step: Step) -> None:
    ordered_away = step.resource.metadata.deletion_timestamp or step.resource.spec.suspend
    if isinstance(step.observed.service, Available) or ordered_away:
        return
    actions = plan(step.resource, step.observed, step.now, drift=step.drift).actions
    touching = (ApplyWorkers, DrainWorker, RemoveWorkers, DeleteGroup, RemoveFinalizer)
    assert not [action for action in actions if isinstance(action, touching)]


@of_each_step
def test_never_more_workers_than_assignable_shards_are_added(step: Step) -> None:
    if step.resource.spec.subscription is not None:  # its workers are not bound to shards, or stand by
        return
    applied = [
        one
        for one in plan(step.resource, step.observed, step.now, drift=step.drift).actions
        if isinstance(one, ApplyWorkers)
    ]
    service = step.observed.service
    shards = service.shards if isinstance(service, Available) else ()
    assignable = sum(shard.state not in ("wait", "over") for shard in shards)
    before = step.observed.worker_set.replicas if step.observed.worker_set else 0
    assert all(one.replicas <= max(assignable, before) for one in applied)


@of_each_step
def test_a_condition_keeps_its_time_while_its_status_is_the_same(step: Step) -> None:
    first = plan(step.resource, step.observed, step.now, drift=step.drift).status
    resource = step.resource.model_copy(update={"status": first})
    later = dataclasses.replace(step.observed, at_unix_s=step.now + 100)
    second = plan(resource, later, step.now + 100).status
    before = {one.type: one for one in first.conditions}
    unchanged = [
        one for one in second.conditions if one.type in before and before[one.type].status == one.status
    ]
    assert unchanged
    assert all(one.last_transition_time == before[one.type].last_transition_time for one in unchanged)


@pytest.mark.parametrize(
    ("existing_s", "runs_with", "set_s"),
    [
        (60, "the settings of before", None),
        (60, "the settings of now", 30),
        (20, "the settings of before", 30),
        (60, "no worker runs", 30),
    ],
)
def test_a_timeout_is_shortened_once_no_worker_uses_the_longer_one(
    existing_s: int, runs_with: str, set_s: int | None
) -> None:
    """It is 30 in the spec. One of two workers was replaced, the other one may be just about to be."""
    step = next(steps(FOLDER / "group-settings.yaml"))
    service = dataclasses.replace(
        available(step.observed.service), group=GroupSettings(timeout_s=existing_s, order=False)
    )
    (first, second) = step.observed.workers
    if runs_with == "the settings of before":
        first = dataclasses.replace(first, revision=Revision(settings="before"))
    workers = () if runs_with == "no worker runs" else (first, second)
    planned = plan(
        step.resource, dataclasses.replace(step.observed, service=service, workers=workers), step.now
    )
    updates = [one.settings for one in planned.actions if isinstance(one, UpdateGroup)]
    assert updates == ([] if set_s is None else [GroupSettings(timeout_s=set_s, order=False)])
    (synced,) = [one for one in planned.status.conditions if one.type == ConditionType.GROUP_SYNCED]
    assert (synced.status, synced.reason) == ("False", "Updating")
    assert ("every worker" in synced.message) == (set_s is None)


def test_contested_group_settings_are_corrected_later_each_time() -> None:
    """As two clusters do that have a group with other settings; observed each second."""
    step = next(steps(FOLDER / "group-settings.yaml"))
    service = dataclasses.replace(
        available(step.observed.service), group=GroupSettings(timeout_s=20, order=False)
    )
    observed, at = dataclasses.replace(step.observed, service=service), []
    for second in range(160):
        planned = plan(step.resource, observed, step.now + second)
        if any(isinstance(one, UpdateGroup) for one in planned.actions):
            at.append(second)
        observed = dataclasses.replace(observed, memory=planned.memory)
    assert at == [0, 1, 2, 22, 62, 142]
    conditions = {one.type: one for one in planned.status.conditions}
    assert conditions[ConditionType.DEGRADED].reason == "ConflictingController"
    assert "ConsumerGroup" in conditions[ConditionType.DEGRADED].message
    assert (conditions[ConditionType.GROUP_SYNCED].status, conditions[ConditionType.READY].status) == (
        "False",
        "False",
    )
    assert "another controller" in conditions[ConditionType.GROUP_SYNCED].message
