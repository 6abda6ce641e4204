"""kstatus (Flux, helm) and Argo CD judge every recorded status as condition Ready says, and never earlier."""

from pathlib import Path

from loghub_operator.api.status import NOT_OBSERVED
from loghub_operator.model.observed import WorkerPhase
from tests.cluster.fixtures import health  # noqa: F401 - a fixture
from tests.loghub_operator.plan.status.test_rollout import DEADLINE_S, World
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.golden import Step, steps, stories
from tests.loghub_operator.support.health import judged


def _object(step: Step) -> Document:
    result = step.resource.to_dict()
    return {**result, "status": step.status}


def _ready(step: Step) -> bool:
    return any((one["type"], one["status"]) == ("Ready", "True") for one in step.status["conditions"])


def test_every_recorded_status_is_judged_as_its_condition_ready(health: Path) -> None:  # noqa: F811
    played = [step for path in stories() for step in steps(path)]
    judgements = judged(health, map(_object, played))
    assert len(judgements) == len(played) > 50
    for step, judgement in zip(played, judgements, strict=True):
        deleted = step.resource.metadata.deletion_timestamp is not None
        assert (judgement.kstatus == "Terminating") == deleted, str(step)
        assert (judgement.kstatus == "Current") == (_ready(step) and not deleted), str(step)
        assert (judgement.argo == "Healthy") == _ready(step), str(step)
    suspended = [
        judgement
        for step, judgement in zip(played, judgements, strict=True)
        if step.status.get("phase") == "Suspended" and step.resource.spec.suspend
    ]
    assert {(one.kstatus, one.argo) for one in suspended if one.passes} == {("Current", "Healthy")}


def test_an_object_or_generation_that_the_operator_has_not_seen_does_not_pass(
    health: Path,  # noqa: F811
) -> None:
    ready = World(replicas=3)
    for ordinal in range(3):
        ready.has(ordinal, ready.new)
    ready.status()
    seen = ready.resource.to_dict()
    changed = {**seen, "metadata": {**seen["metadata"], "generation": 3}}
    new = document(generation=1) | {"status": {"observedGeneration": NOT_OBSERVED}}  # as the CRD defaults it
    judgements = judged(health, [seen, changed, new])
    assert [(one.kstatus, one.argo) for one in judgements] == [
        ("Current", "Healthy"),
        ("InProgress", "Progressing"),
        ("InProgress", "Progressing"),
    ]


def test_a_rollout_that_stands_still_is_failed_and_names_the_worker(health: Path) -> None:  # noqa: F811
    world = World()
    world.has(2, world.new)
    world.has(1, world.new, WorkerPhase.STARTING)
    objects = []
    for after_s in (0, DEADLINE_S, 1):
        world.status(after_s=after_s)
        objects.append(world.resource.to_dict())
    judgements = judged(health, objects)
    assert [(one.kstatus, one.argo) for one in judgements] == [
        ("InProgress", "Progressing"),
        ("InProgress", "Progressing"),
        ("Failed", "Degraded"),
    ]
    assert all("access-1" in message for message in judgements[-1].messages)
