"""What each field of the spec is with ``spec.subscription``: it works, or it is refused in words."""

import copy

import pytest

from loghub_operator.api import parse_resource
from tests.loghub_operator.api.problems import problems
from tests.loghub_operator.plan.change_impact_cases import FIELDS
from tests.loghub_operator.support.examples import Document, document, merge, subscribed

OF_SPARK = "exactly one pipeline must be set: sql, python or processor"
NO_SINK = "a processor writes its results itself: leave out sink"
# The first words with which a field is refused; the longest prefix of its name counts.
REFUSED = {
    "inOrder": "inOrder is for consumer groups",
    "scaling": "the workers of a subscription are not bound to shards",  # the row has autoSplit
    "checkpoint": "a subscription has acknowledgments instead of checkpoints",
    "resetCheckpoints": "a subscription has no checkpoints",
    "pipeline.sql": OF_SPARK,
    "pipeline.python": OF_SPARK,
    "pipeline.processor.acknowledge": "a subscription keeps acknowledgments of single logs",
    "pipeline.sink": NO_SINK,
    "pipeline.stateful": "stateful is for sql and python",
    "pipeline.state": "stateful is for sql and python",
    "spark.executors": "a processor runs without Spark",
}
# Other values than in the table of changes, which is about groups.
OTHER: dict[str, Document] = {"pipeline.processor.acknowledge": subscribed("Shared")}
OTHER["pipeline.processor.acknowledge"]["pipeline"]["processor"]["acknowledge"] = "Batch"


def _spec(field: str) -> Document:
    """A subscription with this field set as in the table of changes."""
    change, before, _ = FIELDS[field]
    result: Document = subscribed("Failover")
    for patch in copy.deepcopy((before, change)):
        for key, value in patch.items():
            own = result.setdefault(key, {}) if isinstance(value, dict) else None
            if isinstance(own, dict):
                _merge(own, value)
            else:
                result[key] = value
    # What the pipeline of the table replaces is not what is asked here.
    if not field.startswith(("pipeline.sql", "pipeline.python", "pipeline.sink")):
        result["pipeline"] |= {"sql": None, "sink": None}
    return OTHER.get(field, result)


def _merge(target: Document, patch: Document) -> None:
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def _words(field: str) -> str | None:
    prefixes = [name for name in REFUSED if field == name or field.startswith(f"{name}.")]
    return REFUSED[max(prefixes, key=len)] if prefixes else None


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_each_field_works_with_a_subscription_or_is_refused_in_words(field: str) -> None:
    value, words = document(_spec(field)), _words(field)
    if words is None:
        parse_resource(value)
    else:
        assert any(words in problem for problem in problems(value)), field


@pytest.mark.parametrize(
    "scaling",
    [
        {"mode": "Auto", "maxReplicas": 6},
        {"mode": "External"},
        {"mode": "Recommend"},
        {"mode": "Auto", "scaleToZero": {}},
        {"workerCapacity": 250, "catchUpSeconds": 60},
    ],
)
def test_each_way_of_scaling_works_for_the_types_with_several_workers(scaling: Document) -> None:
    for kind in ("Failover", "Shared", "KeyShared"):
        parse_resource(document(subscribed(kind, {"scaling": scaling})))


def test_order_is_the_default_except_for_shared() -> None:
    def keeps_order(kind: str, **given: object) -> bool:
        spec = subscribed(kind)
        merge(spec["subscription"], dict(given))
        subscription = parse_resource(document(spec)).spec.subscription
        assert subscription is not None
        return subscription.keeps_order

    orders = {kind: keeps_order(kind) for kind in ("Exclusive", "Failover", "Shared", "KeyShared")}
    assert orders == {"Exclusive": True, "Failover": True, "Shared": False, "KeyShared": True}
    assert not keeps_order("KeyShared", inOrder=False)
