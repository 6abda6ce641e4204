"""A deletion after a reconcile that failed, which the recorded series cannot contain."""

import dataclasses

import pytest

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model.actions import Action, DeleteGroup, DrainWorker, EmitEvent, RemoveFinalizer
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import Available, ObservedState
from loghub_operator.plan.deletion import DELETE_BOUND_S, STILL_S, plan_deletion
from loghub_operator.plan.ownership import RECENT_S
from loghub_operator.plan.subject import subject_of
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.golden import EPOCH, FOLDER, Step, steps

REFUSAL = "Unauthorized: DeleteConsumerGroup is not allowed"


def _deleting() -> Step:
    """The step of a series in which the group is deleted."""
    result = steps(FOLDER / "delete-with-group.yaml")
    return next(step for step in result if any(one["action"] == "DeleteGroup" for one in step.actions))


def _refused(observed: ObservedState) -> ObservedState:
    """The previous reconcile could not carry out its actions."""
    return dataclasses.replace(
        observed,
        memory=Memory(last_error=REFUSAL, service_error=REFUSAL, deletion_seen_unix_s=EPOCH),
    )


def _kinds(actions: tuple[Action, ...]) -> list[type]:
    return [type(action) for action in actions]


@pytest.mark.parametrize("since_s", [1.0, DELETE_BOUND_S])
def test_a_rejected_deletion_is_retried(since_s: float) -> None:
    step = _deleting()
    planned = plan_deletion(subject_of(step.resource, _refused(step.observed)), EPOCH + since_s)
    assert _kinds(planned.actions) == [DeleteGroup, RemoveFinalizer]


def test_a_deletion_rejected_beyond_the_bound_releases_the_object() -> None:
    step = _deleting()
    planned = plan_deletion(subject_of(step.resource, _refused(step.observed)), EPOCH + DELETE_BOUND_S + 1)
    reported, released = planned.actions
    assert isinstance(reported, EmitEvent)
    assert (reported.type, reported.reason) == ("Warning", "ConsumerGroupOrphaned")
    assert REFUSAL in reported.message
    assert isinstance(released, RemoveFinalizer)


def test_the_clock_of_the_api_server_shortens_no_deletion() -> None:
    """Ours is four minutes ahead: the workers leave, and the group is deleted, as at any other time."""
    story = steps(FOLDER / "delete-with-group.yaml")
    for step in story:
        ahead = dataclasses.replace(step.observed, memory=Memory())
        planned = plan_deletion(subject_of(step.resource, ahead), step.now + 240.0)
        assert planned.memory.deletion_seen_unix_s == step.now + 240.0
        if ahead.workers and ahead.worker_set is not None and not ahead.workers[0].drain_requested:
            assert {DrainWorker} == set(_kinds(planned.actions))


def test_a_deletion_first_observed_beyond_the_bound_is_tried() -> None:
    step = _deleting()
    planned = plan_deletion(subject_of(step.resource, step.observed), EPOCH + 100 * DELETE_BOUND_S)
    assert _kinds(planned.actions) == [DeleteGroup, RemoveFinalizer]


def test_an_adopted_group_is_never_deleted() -> None:
    step = _deleting()
    adopted = dataclasses.replace(step.observed, group_record=GroupRecord("Adopted", 0))
    planned = plan_deletion(subject_of(step.resource, _refused(adopted)), EPOCH + 100 * DELETE_BOUND_S)
    assert _kinds(planned.actions) == [RemoveFinalizer]


def test_a_deletion_is_tried_although_something_else_failed_before() -> None:
    """The operator was away beyond the bound, and the API server failed while the workers were removed."""
    step = _deleting()
    observed = dataclasses.replace(step.observed, memory=Memory(last_error="the API server answered 500"))
    planned = plan_deletion(subject_of(step.resource, observed), EPOCH + 100 * DELETE_BOUND_S)
    assert _kinds(planned.actions) == [DeleteGroup, RemoveFinalizer]


def _used(observed: ObservedState, consumer: str, *, listed: bool) -> ObservedState:
    """Another client consumes from the group; the real SLS shows it by a checkpoint only."""
    service = observed.service
    assert isinstance(service, Available)
    first, *rest = service.shards
    saved = dataclasses.replace(
        first, checkpoint_consumer=consumer, checkpoint_unix_s=observed.at_unix_s - 1.0
    )
    return dataclasses.replace(
        observed,
        memory=Memory(deletion_seen_unix_s=EPOCH),
        service=dataclasses.replace(
            service, consumers=(consumer,) if listed else None, shards=(saved, *rest)
        ),
    )


@pytest.mark.parametrize(
    ("consumer", "listed"),
    [("java-7f", True), ("java-7f", False), ("access-0", True)],  # the last one in another cluster
)
def test_a_group_that_others_consume_is_not_deleted(consumer: str, listed: bool) -> None:
    step = _deleting()
    used = _used(step.observed, consumer, listed=listed)
    waiting = plan_deletion(subject_of(step.resource, used), EPOCH + 1.0)
    assert waiting.actions == ()
    (ready,) = [one for one in waiting.status.conditions if one.type == "Ready"]
    assert consumer in ready.message
    assert "stop them" in ready.message
    reported, released = plan_deletion(subject_of(step.resource, used), EPOCH + DELETE_BOUND_S + 1).actions
    assert isinstance(reported, EmitEvent)
    assert reported.reason == "ConsumerGroupOrphaned"
    assert consumer in reported.message
    assert isinstance(released, RemoveFinalizer)


def _looked_at_every_8_s(saves_until_s: float, *, age_s: float = 1.0) -> list[tuple[float, Action]]:
    """The actions of a deletion at the real SLS, where a consumer named like a worker saves a checkpoint each
    minute until then; the last one before was ``age_s`` old."""
    step, memory = _deleting(), Memory(deletion_seen_unix_s=EPOCH)
    found: list[tuple[float, Action]] = []
    for look_s in range(0, 400, 8):
        saved_s = min(look_s // 60 * 60, saves_until_s) - age_s
        service = available(step.observed.service)
        first, *rest = service.shards
        saved = dataclasses.replace(
            first, checkpoint_consumer="access-0", checkpoint_unix_s=EPOCH + saved_s, checkpoint="MTA="
        )
        observed = dataclasses.replace(
            step.observed,
            at_unix_s=EPOCH + look_s,
            memory=memory,
            service=dataclasses.replace(service, consumers=None, shards=(saved, *rest)),
        )
        planned = plan_deletion(subject_of(step.resource, observed), EPOCH + look_s)
        memory = planned.memory
        found += [(look_s, action) for action in planned.actions]
        if RemoveFinalizer() in planned.actions:
            return found
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("saves_until_s", "age_s", "deleted", "within_s"),
    [
        (0.0, 1.0, True, STILL_S + 8),  # the last ones of its own workers
        (0.0, RECENT_S + 1, True, 0.0),  # nobody has consumed for long
        (60.0, 1.0, True, 64 + STILL_S + 8),  # a pod on a lost node
        (1e9, 1.0, False, DELETE_BOUND_S + 8),  # a copy of the object in another cluster
    ],
)
def test_on_the_real_sls_nothing_is_deleted_whose_checkpoints_still_move(
    saves_until_s: float, age_s: float, deleted: bool, within_s: float
) -> None:
    """Neither a list of consumers nor a name says whose they are."""
    found = _looked_at_every_8_s(saves_until_s, age_s=age_s)
    assert (DeleteGroup() in [action for _, action in found]) is deleted
    assert found[-1][0] <= within_s
    orphaned = [action.message for _, action in found if isinstance(action, EmitEvent)]
    assert ["access-0" in message for message in orphaned] == ([] if deleted else [True])
