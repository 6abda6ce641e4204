"""Messages about the number of workers: who decided it, and the plural."""

import re
from collections.abc import Iterator

import pytest

from loghub_operator.model.actions import EmitEvent, Plan
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.golden import EPOCH, observed_at
from tests.loghub_operator.support.rounds import plan

WRONG_PLURAL = re.compile(r"(?<!of )\b1 (workers|shards)\b")
MODES = ("Fixed", "External", "Recommend", "Auto")


def planned(mode: str, *, replicas: int, shards: int, run: int | None, **scaling: object) -> Plan:
    given = resource({"replicas": replicas, "scaling": {"mode": mode, **scaling}})
    observed: Document = {
        "placement": {"endpoint": "http://loghub.svc", "sink_root": "/sink", "needs_project_address": False},
        "service": {
            "group": {"timeout_s": 30, "order": False},
            "shards": [
                {"shard": n, "state": "not_alloc", "lag_s": 60, "lag_logs": 9, "lag_groups": 9}
                for n in range(shards)
            ],
            "consumers": [],
        },
        "group_origin": "Created",
    }
    if run is not None:
        observed["worker_set"] = {"replicas": run, "settings": "x"}
    return plan(given, observed_at(given, observed, EPOCH), EPOCH)


def texts(plan: Plan) -> Iterator[str]:
    yield from (condition.message for condition in plan.status.conditions)
    yield from (one.message for one in plan.actions if isinstance(one, EmitEvent))


def message_of(plan: Plan, kind: str) -> str:
    return next(one.message for one in plan.status.conditions if one.type == kind)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("run", [None, 0, 1, 2, 3])
def test_one_worker_or_shard_is_no_plural(mode: str, replicas: int, shards: int, run: int | None) -> None:
    for bounds in ({}, {"maxReplicas": 1}, {"minReplicas": 1, "maxReplicas": 2}):
        for text in texts(planned(mode, replicas=replicas, shards=shards, run=run, **bounds)):
            assert not WRONG_PLURAL.search(text), text


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("Fixed", "0 -> 1 worker: spec.replicas is 1"),
        ("External", "0 -> 1 worker: spec.replicas is 1"),
        ("Recommend", "0 -> 1 worker: spec.replicas is 1"),
        ("Auto", "0 -> 1 worker: starting with 1 worker, from spec.replicas"),
    ],
)
def test_the_event_of_a_step_says_what_decided(mode: str, message: str) -> None:
    result = planned(mode, replicas=1, shards=2, run=0, minReplicas=0)
    (event,) = (one for one in result.actions if isinstance(one, EmitEvent) and one.reason == "ScaledUp")
    assert event.message == message


@pytest.mark.parametrize("run", [0, 1])
def test_in_auto_nobody_requested_a_number(run: int) -> None:
    for text in texts(planned("Auto", replicas=2, shards=3, run=run)):
        assert "requested" not in text
    first = planned("Auto", replicas=2, shards=3, run=None)
    assert message_of(first, "ScalingLimited") == "starting with 2 workers, from spec.replicas"
