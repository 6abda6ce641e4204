"""What stops workers is carried out although something else is refused: a key may lack the right to change a
group, and the Services of projects are counted. A plan ends at the first action that is refused.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model.actions import (
    Action,
    ApplyWorkers,
    CreateGroup,
    DrainWorker,
    EmitEvent,
    EnsureProjectService,
    RestartWorker,
    UpdateGroup,
)
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    ObservedState,
    ObservedStatefulSet,
    UnaddressedProject,
)
from loghub_operator.model.revision import Revision
from tests.loghub_operator.plan.group_of_sixteen import observed
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH
from tests.loghub_operator.support.rounds import plan

Document = dict[str, Any]
Change = Callable[[ObservedState], ObservedState]


def _of_service(state: ObservedState, group: GroupSettings | None) -> ObservedState:
    assert isinstance(state.service, Available)
    return replace(state, service=replace(state.service, group=group))


REFUSED: dict[type[Action], Change] = {
    UpdateGroup: lambda state: _of_service(state, GroupSettings(timeout_s=7, order=True)),
    CreateGroup: lambda state: _of_service(state, None),
    EnsureProjectService: lambda state: replace(state, unaddressed=(UnaddressedProject(name="other"),)),
}
RESET = {"resetCheckpoints": {"to": "End", "nonce": "one"}}
SEEN = {"observedGeneration": 1}
# What stops workers: the spec, the pods, whether they have left, and what must be done.
STOPS: dict[str, tuple[Document, int, bool, list[Action | type[Action]]]] = {
    "suspend": ({"suspend": True}, 2, False, [DrainWorker("access-0"), DrainWorker("access-1")]),
    "suspend, left": ({"suspend": True}, 2, True, [ApplyWorkers]),
    "reset": (RESET, 1, False, [DrainWorker("access-0")]),
    "reset, left": (RESET, 1, True, [ApplyWorkers]),
    "fewer": ({"replicas": 1}, 2, False, [DrainWorker("access-1")]),
    "fewer, left": ({"replicas": 1}, 2, True, [RestartWorker("access-0"), ApplyWorkers]),
    "none": ({"replicas": 0}, 1, True, [ApplyWorkers]),
}


def _carried_out(actions: tuple[Action, ...], refused: type[Action]) -> tuple[Action, ...]:
    """Up to the one that is refused, which is among them; without events."""
    done = actions[: [type(one) for one in actions].index(refused)]
    return tuple(one for one in done if not isinstance(one, EmitEvent))


def _found(refused: type[Action], *, pods: int, left: bool) -> ObservedState:
    """So many pods of a group that the object has created, and what is refused as what is missing."""
    state = replace(observed(pods=pods, replicas=pods, left=left), unaddressed=())
    return replace(REFUSED[refused](state), group_record=GroupRecord("Created", 15), last_initial_shard=15)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("what", STOPS)
def test_what_stops_workers_waits_for_nothing_that_may_be_refused(what: str, refused: type[Action]) -> None:
    spec, pods, left, expected = STOPS[what]
    actions = plan(resource(spec, SEEN), _found(refused, pods=pods, left=left), EPOCH).actions
    done = _carried_out(actions, refused)
    assert [one if one in expected else type(one) for one in done] == expected


@pytest.mark.parametrize("refused", REFUSED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("what", ["more", "first", "other settings", "fewer with other settings"])
def test_what_starts_workers_or_changes_them_comes_after(what: str, refused: type[Action]) -> None:
    """A worker with a longer timeout than the group's would hold shards that were assigned again."""
    replicas = {"more": 3, "first": 1, "other settings": 2, "fewer with other settings": 1}[what]
    pods = 0 if what == "first" else 2
    found = _found(refused, pods=pods, left=what == "fewer with other settings")
    if "other settings" in what:
        before = ObservedStatefulSet(replicas=pods, revision=Revision(settings="before"))
        found = replace(found, worker_set=before)
    actions = plan(resource({"replicas": replicas}, SEEN), found, EPOCH).actions
    assert not any(isinstance(one, ApplyWorkers) for one in _carried_out(actions, refused))
    assert any(isinstance(one, ApplyWorkers) for one in actions)
