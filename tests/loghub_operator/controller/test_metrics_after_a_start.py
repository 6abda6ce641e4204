"""What autoscalers read of an operator that has just started, until it has reconciled every group once."""

import asyncio
from typing import Any

import pytest

from loghub_operator.autoscaling.external_metrics import value_list
from loghub_operator.controller.app import Operator, OperatorConnections
from loghub_operator.controller.exporters import Exporters
from loghub_operator.leader.lease import LeaseTimings
from loghub_operator.metrics.store import UnknownGroupError, UnknownValueError
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import document
from tests.loghub_operator.support.group_metrics import HandClock, readings


class Listed:
    """An API server that lists two groups, and one that is being deleted."""

    async def list(self, *_: object) -> list[dict[str, Any]]:
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["loghub.dev/consumer-group"]}
        return [
            document(name="a", namespace="shop"),
            document(name="b", namespace="shop"),
            document(name="c", namespace="shop", **leaving),
        ]


def test_a_sum_over_groups_waits_for_each_of_them() -> None:
    kube: Any = Listed()
    clock, unused = HandClock(), Any
    exporters = Exporters(Settings(), clock)
    connections = OperatorConnections(kube=kube, login=unused, connect=unused)
    operator = Operator(
        Settings(), connections=connections, clock=clock, timings=LeaseTimings(), exporters=exporters
    )

    def read(selector: str = "") -> list[str]:
        found = value_list(exporters.store, namespace="shop", metric="loghub_lag_seconds", selector=selector)
        return [one["metricLabels"]["consumerGroup"] for one in found["items"]]

    with pytest.raises(UnknownValueError, match="has not listed the groups yet"):
        read()
    asyncio.run(operator._list_groups())
    exporters.observed(readings("a"), ())
    with pytest.raises(UnknownValueError, match="shop/b has not been reconciled yet"):
        read()
    assert read("consumerGroup=a") == ["a"], "one that does not wait for others"
    with pytest.raises(UnknownGroupError):
        read("consumerGroup=c")
    exporters.observed(readings("b"), ())
    assert read() == ["a", "b"]
