"""A deletion after a reconcile that failed, which the recorded series cannot contain."""

import dataclasses

import pytest

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model.actions import Action, DeleteGroup, EmitEvent, RemoveFinalizer
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.deletion import DELETE_BOUND_S, plan_deletion
from tests.loghub_operator.support.golden import EPOCH, FOLDER, Step, steps

REFUSAL = "Unauthorized: DeleteConsumerGroup is not allowed"


def _deleting() -> Step:
    """The step of a series in which the group is deleted."""
    result = steps(FOLDER / "delete-with-group.yaml")
    return next(step for step in result if any(one["action"] == "DeleteGroup" for one in step.actions))


def _refused(observed: ObservedState) -> ObservedState:
    """The previous reconcile could not carry out its actions."""
    return dataclasses.replace(observed, memory=Memory(last_error=REFUSAL))


def _kinds(actions: tuple[Action, ...]) -> list[type]:
    return [type(action) for action in actions]


@pytest.mark.parametrize("since_s", [1.0, DELETE_BOUND_S])
def test_a_rejected_deletion_is_retried(since_s: float) -> None:
    step = _deleting()
    planned = plan_deletion(step.resource, _refused(step.observed), EPOCH + since_s)
    assert _kinds(planned.actions) == [DeleteGroup, RemoveFinalizer]


def test_a_deletion_rejected_beyond_the_bound_releases_the_object() -> None:
    step = _deleting()
    planned = plan_deletion(step.resource, _refused(step.observed), EPOCH + DELETE_BOUND_S + 1)
    reported, released = planned.actions
    assert isinstance(reported, EmitEvent)
    assert (reported.type, reported.reason) == ("Warning", "ConsumerGroupOrphaned")
    assert REFUSAL in reported.message
    assert isinstance(released, RemoveFinalizer)


def test_a_deletion_first_observed_beyond_the_bound_is_tried() -> None:
    step = _deleting()
    planned = plan_deletion(step.resource, step.observed, EPOCH + 100 * DELETE_BOUND_S)
    assert _kinds(planned.actions) == [DeleteGroup, RemoveFinalizer]


def test_an_adopted_group_is_never_deleted() -> None:
    step = _deleting()
    adopted = dataclasses.replace(step.observed, group_record=GroupRecord("Adopted", 0))
    planned = plan_deletion(step.resource, _refused(adopted), EPOCH + 100 * DELETE_BOUND_S)
    assert _kinds(planned.actions) == [RemoveFinalizer]
