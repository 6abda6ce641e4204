"""What one reconcile leaves for the next, and what a changed revision causes."""

import dataclasses

import pytest

from loghub_operator.model.actions import ActionRefused, ApplyWorkers, EmitEvent
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.revision import UNKNOWN, Revision
from loghub_operator.plan.planner import finish, plan
from loghub_operator.plan.subject import desired_workers, subject_of
from tests.loghub_operator.support.golden import FOLDER, Step, steps


def _settled() -> Step:
    """A step at which everything is as desired, so that no action is planned."""
    return next(step for step in steps(FOLDER / "drift.yaml") if not step.actions)


def test_the_error_of_a_reconcile_is_known_only_to_the_next_one() -> None:
    step = _settled()
    first = subject_of(step.resource, step.observed, NO_MEMORY)
    failed = finish(first, plan(first, step.now), ActionRefused("the quota is used up"), step.now)
    assert failed.memory.last_error == "the quota is used up"
    second = subject_of(step.resource, step.observed, failed.memory)
    assert second.observed.memory.last_error == "the quota is used up"
    assert finish(second, plan(second, step.now + 1), None, step.now + 1).memory.last_error == ""


def test_the_first_reconcile_keeps_what_was_observed() -> None:
    step = _settled()
    observed = dataclasses.replace(step.observed, memory=Memory(last_error="earlier"))
    assert subject_of(step.resource, observed, None).observed.memory.last_error == "earlier"


@pytest.mark.parametrize(
    ("change", "rolls"),
    [({"objects": "earlier"}, False), ({"pod_template": "earlier"}, True)],
    ids=["other objects", "pod template"],
)
def test_another_revision_is_applied_and_only_another_pod_template_restarts_workers(
    change: dict[str, object], rolls: bool
) -> None:
    step = _settled()
    assert step.observed.worker_set is not None
    applied = dataclasses.replace(step.observed.worker_set.revision, **change)  # type: ignore[arg-type]
    worker_set = dataclasses.replace(step.observed.worker_set, revision=applied)
    observed = dataclasses.replace(step.observed, worker_set=worker_set)
    actions = plan(subject_of(step.resource, observed, NO_MEMORY), step.now).actions
    assert [action.spec for action in actions if isinstance(action, ApplyWorkers)] == [
        desired_workers(step.resource, observed)
    ]
    events = [action.reason for action in actions if isinstance(action, EmitEvent)]
    assert ("RollingRestart" in events) == rolls
    assert "DriftCorrected" not in events


def test_a_change_of_the_spec_that_concerns_no_worker_is_not_applied() -> None:
    step = _settled()
    assert step.observed.worker_set is not None
    applied = dataclasses.replace(step.observed.worker_set.revision, generation=99)
    worker_set = dataclasses.replace(step.observed.worker_set, revision=applied)
    observed = dataclasses.replace(step.observed, worker_set=worker_set)
    assert plan(subject_of(step.resource, observed, NO_MEMORY), step.now).actions == ()


@pytest.mark.parametrize(
    "revision",
    [
        Revision(settings="a1", pod_template="b2"),
        Revision(settings="a1"),
        Revision(settings="a1", pod_template="b2", objects="c3", generation=7),
    ],
    ids=str,
)
def test_a_revision_is_read_back_from_its_annotation(revision: Revision) -> None:
    parsed = Revision.parse(str(revision))
    assert (parsed, parsed.generation) == (revision, revision.generation)


@pytest.mark.parametrize("text", ["a1.b2", "a1.", "a1.b2.c3.7"])
@pytest.mark.parametrize("added", [";", ";canary=2", ";a.b;c=d.e"])
def test_a_part_that_another_release_added_to_a_revision_is_ignored(text: str, added: str) -> None:
    parsed = Revision.parse(text + added)
    assert parsed == Revision.parse(text) != UNKNOWN
    assert parsed.generation == Revision.parse(text).generation


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "a.b.c.x", "a.b.c.1.2", "a.b.c." + "9" * 5000, "ä.b"])
def test_an_edited_annotation_is_an_unknown_revision(text: str) -> None:
    assert Revision.parse(text) == UNKNOWN
