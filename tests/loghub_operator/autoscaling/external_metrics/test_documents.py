"""The documents of ``external.metrics.k8s.io``, and the small languages in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_operator.autoscaling.external_metrics import (
    BadSelectorError,
    UnknownMetricError,
    failure,
    group,
    group_list,
    parse,
    quantity,
    resource_list,
    value_list,
)
from loghub_operator.metrics.store import UnknownGroupError, UnknownValueError
from tests.loghub_operator.support.group_metrics import readings, store


def test_discovery_names_the_group_its_version_and_every_metric() -> None:
    assert group()["preferredVersion"] == {
        "groupVersion": "external.metrics.k8s.io/v1beta1",
        "version": "v1beta1",
    }
    assert [one["name"] for one in group_list()["groups"]] == ["external.metrics.k8s.io"]
    assert [one["name"] for one in resource_list()["resources"]] == [
        "loghub_desired_workers",
        "loghub_lag_log_groups",
        "loghub_retry_log_groups",
        "loghub_lag_seconds",
        "loghub_arrival_log_groups_per_second",
        "loghub_subscription_backlog_logs",
    ]
    assert all(one["namespaced"] for one in resource_list()["resources"])


def test_values_of_the_groups_that_match_in_this_namespace() -> None:
    on = store(readings("a"), readings("b", lag_seconds=3.0), readings("a", namespace="other"))
    result = value_list(on, namespace="shop", metric="loghub_lag_seconds", selector="consumerGroup=a")
    assert result == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "loghub_lag_seconds",
                "metricLabels": {"consumerGroup": "a"},
                "timestamp": "2027-01-15T08:00:00Z",
                "value": "42250m",
            }
        ],
    }
    every = value_list(on, namespace="shop", metric="loghub_lag_seconds", selector="")
    assert [(one["metricLabels"]["consumerGroup"], one["value"]) for one in every["items"]] == [
        ("a", "42250m"), ("b", "3"),
    ]  # fmt: skip


def test_one_unknown_value_makes_the_sum_unavailable() -> None:
    on = store(readings("a"), readings("b", wanted=None))
    with pytest.raises(UnknownValueError, match="loghub_desired_workers of shop/b is currently unknown"):
        value_list(on, namespace="shop", metric="loghub_desired_workers", selector="")
    only = value_list(on, namespace="shop", metric="loghub_desired_workers", selector="consumerGroup=a")
    assert only["items"][0]["value"] == "2"


def test_unknown_group_and_unknown_metric_are_different_errors() -> None:
    on = store(readings("a"))
    with pytest.raises(UnknownGroupError, match="in namespace shop matches 'consumerGroup=b'"):
        value_list(on, namespace="shop", metric="loghub_lag_seconds", selector="consumerGroup=b")
    with pytest.raises(UnknownMetricError, match="unknown metric 'cpu'; the metrics are loghub_"):
        value_list(on, namespace="shop", metric="cpu", selector="")
    assert failure(404, "words")["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (1.5, "1500m"),
        (0.0001, "1m"),
        (42.25, "42250m"),
        (0.3, "300m"),
        (1e300, "9223372036854774"),
    ],
)
def test_a_number_to_a_quantity(value: float, text: str) -> None:
    assert quantity(value) == text


@given(st.floats(min_value=0, max_value=1e12))
def test_a_quantity_is_never_less_than_the_number_and_hardly_more(value: float) -> None:
    text = quantity(value)
    read = int(text[:-1]) / 1000 if text.endswith("m") else float(text)
    assert value * (1 - 1e-9) - 1e-6 <= read <= value * (1 + 1e-9) + 0.0011


LABELS = {"consumerGroup": "access", "tier": "gold"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("consumerGroup=access", True),
        ("consumerGroup==access", True),
        (" consumerGroup = access , tier=gold ", True),
        ("consumerGroup=other", False),
        ("consumerGroup!=other", True),
        ("consumerGroup!=access", False),
        ("missing!=x", True),
        ("consumerGroup in (other, access)", True),
        ("consumerGroup in (other)", False),
        ("consumerGroup notin (other)", True),
        ("consumerGroup notin (access)", False),
        ("missing notin (x)", True),
        ("tier", True),
        ("missing", False),
        ("!missing", True),
        ("!tier", False),
        ("consumerGroup=access,tier=silver", False),
        ("app.kubernetes.io/name!=x", True),
        ("empty=", False),
    ],
)
def test_a_selector_is_parsed(text: str, matches: bool) -> None:
    assert all(term.matches(LABELS) for term in parse(text)) is matches


@pytest.mark.parametrize(
    "text", [",", "=a", "a=b c", "a in b", "a in (b", "a>1", "a=b;c", "a=b,,c=d", "a=b&c", "-a=b", "a" * 5000]
)
def test_an_invalid_selector_is_rejected(text: str) -> None:
    with pytest.raises(BadSelectorError):
        parse(text)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        parse(text)
    except BadSelectorError:
        return
