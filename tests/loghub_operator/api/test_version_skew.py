"""Objects that another release wrote: what this one does not know is ignored, and nothing else is lost."""

from typing import Any

import pytest

from loghub_operator.api import InvalidResourceError, parse_resource
from loghub_operator.api.parse import parse_for_deletion, parse_status, parse_stored
from tests.loghub_operator.support.examples import Document, document, merge
from tests.loghub_operator.support.golden import EPOCH, FOLDER, steps
from tests.loghub_operator.support.rounds import plan

TIME = "2026-09-21T14:13:20Z"
STATUS: Document = {
    "phase": "Running",
    "observedGeneration": 2,
    "replicas": 2,
    "readyReplicas": 2,
    "shards": [{"id": 0, "state": "over"}, {"id": 1, "state": "already_alloc", "consumer": "access-0"}],
    "scaling": {
        "mode": "Fixed",
        "desiredReplicas": 2,
        "reason": "ScalingDisabled",
        "history": [{"target": "Workers", "time": TIME, "from": 1, "to": 2, "reason": "X"}],
    },
    "checkpointReset": {"nonce": "n1", "phase": "Committing", "lastTransitionTime": TIME},
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": TIME},
        {"type": "Degraded", "status": "False", "reason": "AsExpected", "lastTransitionTime": TIME},
    ],
}
ADDED: Document = {
    "spec": {
        "fromTheFuture": {"a": [1]},
        "worker": {"limit": 5},
        "pipeline": {"sink": {"parquet": {"x": 1}}},
    },
    "status": {"fromTheFuture": 1, "checkpointReset": {"verified": 3}, "scaling": {"inputs": {"x": 1}}},
}


def stored(**more: Any) -> Document:
    """As an API server with a newer CRD returns it."""
    result = {**document(uid="uid-1", generation=2), "status": STATUS}
    result = parse_stored(result).to_dict()
    merge(result, more)
    return result


def test_fields_of_a_newer_release_are_ignored_in_a_stored_object_and_refused_in_a_users_file() -> None:
    newer = stored(**ADDED)
    assert parse_stored(newer) == parse_stored(stored())
    with pytest.raises(InvalidResourceError, match="fromTheFuture"):
        parse_resource(newer)


def test_a_users_file_may_have_any_metadata() -> None:
    labeled = document(labels={"team": "a"}, resourceVersion="7")
    assert parse_resource(labeled) == parse_resource(document())


def test_what_is_really_wrong_in_a_stored_object_is_refused() -> None:
    newer = stored(spec={"pipeline": {"sink": {"parquet": None, "pulsar": {"topic": "x"}}}})
    with pytest.raises(InvalidResourceError) as caught:
        parse_stored(newer)
    assert [problem.path for problem in caught.value.problems] == ["spec.pipeline.sink"]


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"phase": "Paused"}, {"phase"}),
        ({"replicas": "two"}, {"replicas"}),
        ({"scaling": {"mode": "Predictive"}}, {"scaling"}),
        ({"scaling": {"limitedBy": "Budget"}}, set()),
        ({"scaling": {"history": "none"}}, {"scaling.history"}),
        ({"lag": {"seconds": "short"}}, set()),
        ({"shards": [{"id": 0, "state": "parked"}, STATUS["shards"][1]]}, {"shards.0"}),
        ({"conditions": [{"type": "New", "status": "Maybe"}, STATUS["conditions"][1]]}, {"conditions.0"}),
        ({"checkpointReset": "none"}, {"checkpointReset"}),
    ],
    ids=str,
)
def test_only_the_part_of_a_status_that_cannot_be_read_is_lost(change: Document, lost: set[str]) -> None:
    wanted, newer = parse_status(STATUS).to_dict(), stored()["status"]
    merge(newer, change)
    for path in lost:
        _remove(wanted, path.split("."))
    for defaulted in ("replicas", "scaling.history"):
        if defaulted in lost:
            _restore(wanted, defaulted)
    assert {**parse_status(newer).to_dict(), "lag": None} == {**wanted, "lag": None}


@pytest.mark.parametrize("time", ["", "soon", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01"])
@pytest.mark.parametrize("name", ["checkpoint-reset", "missing-secret", "auto-follows-the-load"])
def test_no_time_in_a_status_ends_a_reconcile(name: str, time: str) -> None:
    """The API server accepts some of them as date-time. A reset is not lost either."""
    for step in steps(FOLDER / f"{name}.yaml"):
        before = step.resource.status
        status = parse_status(_with_times(before.to_dict(), time))
        found = step.resource.model_copy(update={"status": status})
        assert plan(found, step.observed, EPOCH).status.conditions
        resets = [
            one and (one.nonce, one.phase) for one in (status.checkpoint_reset, before.checkpoint_reset)
        ]
        assert resets[0] == resets[1]


def _with_times(value: Any, time: str) -> Any:
    """With this in place of every time, and of every time that may be absent."""
    if isinstance(value, list):
        return [_with_times(one, time) for one in value]
    if not isinstance(value, dict):
        return value
    names = {name for name in value if name.endswith(("Time", "time", "Since", "At"))}
    if "uid" in value:
        names |= {"accessSince", "refusedSince"}
    return {name: _with_times(one, time) for name, one in value.items()} | dict.fromkeys(names, time)


def _remove(value: Any, path: list[str]) -> None:
    *parents, last = path
    for name in parents:
        value = value[int(name) if name.isdigit() else name]
    del value[int(last) if last.isdigit() else last]


def _restore(value: Document, path: str) -> None:
    if path == "replicas":
        value["replicas"] = 0
    else:
        value["scaling"]["history"] = []


@pytest.mark.parametrize("status", [{"observedGeneration": "two"}, {"x": 1}, {"phase": 7}], ids=str)
def test_an_object_with_a_status_that_cannot_be_read_is_not_new(status: Document) -> None:
    assert not parse_stored({**document(), "status": status}).is_new


@pytest.mark.parametrize("status", [None, {}, {"observedGeneration": -1}], ids=str)
def test_an_object_without_a_status_is_new(status: Document | None) -> None:
    assert parse_stored({**document(), "status": status}).is_new


def test_a_phase_of_a_reset_that_another_release_recorded_stays_as_it_is() -> None:
    newer = stored(status={"checkpointReset": {"phase": "Verifying"}})
    reset = parse_stored(newer).status.checkpoint_reset
    assert reset is not None
    assert (reset.nonce, reset.phase) == ("n1", "Verifying")
    assert reset.to_dict()["phase"] == "Verifying"


UNREADABLE: Document = {
    "pipeline": {"sink": {"parquet": None, "pulsar": {}}},
    "scaling": {"mode": "Predictive"},
}


def test_of_an_object_that_cannot_be_read_what_its_deletion_needs_is_read() -> None:
    spec = {"deletionPolicy": "Delete", "consumerGroup": "mine", "timeoutSeconds": 60, **UNREADABLE}
    newer = stored(spec=spec)
    with pytest.raises(InvalidResourceError):
        parse_stored(newer)
    left = parse_for_deletion(newer)
    assert left is not None
    assert (left.spec.deletion_policy, left.group, left.spec.project) == ("Delete", "mine", "demo")
    assert left.spec.timeout_seconds == 60
    assert left.metadata == parse_stored(stored()).metadata
    assert left.status == parse_stored(stored()).status


def test_timing_that_cannot_be_read_has_its_default_in_a_deletion() -> None:
    left = parse_for_deletion(stored(spec={"timeoutSeconds": "long", "deletionPolicy": "Delete"}))
    assert left is not None
    assert (left.spec.timeout_seconds, left.spec.deletion_policy) == (30, "Delete")


@pytest.mark.parametrize(
    "spec", [{"deletionPolicy": "Archive"}, {"project": 7}, {"logstore": None}, {"endpoint": "x y"}], ids=str
)
def test_a_group_that_is_not_known_or_a_policy_that_is_not_is_not_guessed(spec: Document) -> None:
    assert parse_for_deletion(stored(spec=spec)) is None


def test_a_deletion_of_a_subscription_deletes_no_group_of_its_name() -> None:
    spec = {"pipeline": {"processor": {"factory": 7}}, "subscription": {"type": "KeyShared", "key": ["user"]}}
    left = parse_for_deletion(stored(spec={**spec, "deletionPolicy": "Delete"}))
    assert left is not None
    assert left.consumed == "subscription access"
    assert left.spec.subscription is not None
    assert left.spec.subscription.key == ("user",)


def test_a_subscription_of_a_type_of_another_release_is_left_alone() -> None:
    spec = {"subscription": {"type": "Dispersed"}, "deletionPolicy": "Delete"}
    assert parse_for_deletion(stored(spec=spec)) is None
