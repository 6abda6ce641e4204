"""A status is written without what the API server's older schema refuses. The messages are those of
Kubernetes 1.36 (`tests.apiserver.test_version_skew` has the real ones)."""

import copy
from typing import Any

import pytest

from loghub_operator.apply.older_schema import FORGOTTEN_S, OlderSchema
from tests.loghub_operator.support.examples import Document

STATUS: Document = {
    "phase": "Updating",
    "observedGeneration": 1,
    "lastProgressTime": "2026-01-01T00:00:00Z",
    "shardSummary": {"total": 1, "waiting": 0},
    "shards": [{"id": 0, "state": "over", "readOnly": True}, {"id": 7, "state": "parked", "readOnly": True}],
    "checkpointReset": {"nonce": "1", "phase": "Failed"},
    "conditions": [{"type": "Ready", "status": "True"}],
}
TYPED = "failed to create typed patch object (default/aa; loghub.dev/v1alpha1, Kind=LogHubConsumerGroup): "
INVALID = 'LogHubConsumerGroup.loghub.dev "aa" is invalid: '
UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid"
)


class Clock:
    now = 0.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return self.now


def schema() -> tuple[OlderSchema, Clock]:
    clock = Clock()
    reading: Any = clock
    return OlderSchema(reading), clock


def undeclared(*paths: str) -> str:
    if len(paths) == 1:
        return f"{TYPED}.status.{paths[0]}: field not declared in schema"
    lines = (f"\n  .status.{path}: field not declared in schema" for path in paths)
    return f"{TYPED}errors:{''.join(lines)}"


def test_undeclared_fields_are_left_out_of_every_item() -> None:
    older, _ = schema()
    message = undeclared("shardSummary.waiting", "shards[id=0].readOnly", "lastProgressTime")
    result = older.reduced(STATUS, message)
    assert result == {
        **{name: value for name, value in STATUS.items() if name != "lastProgressTime"},
        "shardSummary": {"total": 1},
        "shards": [{"id": 0, "state": "over"}, {"id": 7, "state": "parked"}],
    }
    assert older.known_part(copy.deepcopy(STATUS)) == result, "the next status is written at once"


def test_the_keys_of_a_list_may_be_texts() -> None:
    older, _ = schema()
    result = older.reduced(STATUS, undeclared('conditions[type="Ready"].status'))
    assert result is not None
    assert result["conditions"] == [{"type": "Ready"}]


def test_a_newer_crd_is_noticed_after_a_while() -> None:
    older, clock = schema()
    older.reduced(STATUS, undeclared("lastProgressTime"))
    clock.now += FORGOTTEN_S - 1
    assert "lastProgressTime" not in older.known_part(STATUS)
    clock.now += 1
    assert older.known_part(STATUS) == STATUS


def test_an_unknown_value_is_left_out_of_this_status_only() -> None:
    older, _ = schema()
    message = (
        f'{INVALID}[status.phase: Unsupported value: "Updating": supported values: "Running", {UNCHECKED}]'
    )
    result = older.reduced(STATUS, message)
    assert result == {name: value for name, value in STATUS.items() if name != "phase"}
    assert older.known_part(STATUS) == STATUS
    single = f'{INVALID}status.phase: Unsupported value: "Updating": supported values: "Running"'
    assert older.reduced(STATUS, single) == result


def test_an_item_with_an_unknown_value_is_left_out() -> None:
    older, _ = schema()
    message = f'{INVALID}[status.shards[1].state: Unsupported value: "parked": supported values: "over"]'
    result = older.reduced(STATUS, message)
    assert result is not None
    assert [shard["id"] for shard in result["shards"]] == [0]


def test_what_lacks_a_required_value_is_left_out() -> None:
    older, _ = schema()
    result = older.reduced(STATUS, f"{INVALID}[status.shardSummary.waiting: Required value, {UNCHECKED}]")
    assert result == {name: value for name, value in STATUS.items() if name != "shardSummary"}


@pytest.mark.parametrize(
    "message",
    [
        undeclared("checkpointReset.phase"),
        f'{INVALID}status.checkpointReset.phase: Unsupported value: "Failed": supported values: "Resuming"',
        undeclared("observedGeneration"),
        undeclared("ownership"),
        'loghubconsumergroups.loghub.dev "aa" is forbidden: User cannot patch resource',
        f"{INVALID}spec.endpoint: Invalid value: 7",
        f"{INVALID}status.nothing: Required value",
        "",
    ],
)
def test_what_decisions_rest_on_is_never_left_out_and_other_errors_are_errors(message: str) -> None:
    older, _ = schema()
    assert older.reduced(STATUS, message) is None
    assert older.known_part(STATUS) == STATUS
