"""The metrics store: fresh, stale and removed metrics, and who is notified."""

import asyncio

import pytest

from loghub_operator.autoscaling.metric_catalog import BY_KEDA_NAME, current_value, is_active
from loghub_operator.metrics.store import UnknownGroupError, UnknownValueError, fresh_s
from tests.loghub_operator.support.group_metrics import (
    HandClock,
    condition,
    readings,
    store,
    subscription_readings,
)


def test_updated_metrics_become_stale_and_fresh_again() -> None:
    clock = HandClock()
    on = store(readings(), clock=clock)
    clock.now += 60.0
    assert on.read("shop", "access").lag_groups == 1200
    clock.now += 0.5
    with pytest.raises(UnknownValueError, match="shop/access has not been reconciled recently"):
        on.read("shop", "access")
    assert [one.fresh for one in on.snapshot()] == [False]
    on.update(readings(lag_groups=7), ())
    assert on.read("shop", "access").lag_groups == 7


def test_a_group_is_unknown_in_another_namespace() -> None:
    on = store(readings())
    with pytest.raises(UnknownGroupError, match="no LogHubConsumerGroup access in namespace other"):
        on.read("other", "access")


def test_a_removed_group_is_unknown() -> None:
    on = store(readings(), readings("b"))
    on.remove("shop", "access")
    on.remove("shop", "access")
    with pytest.raises(UnknownGroupError):
        on.read("shop", "access")
    assert on.names("shop") == ("b",)


def test_a_group_that_exists_is_unknown_until_it_was_reconciled() -> None:
    on, existing = store(readings()), None
    on.follow(lambda namespace: existing if namespace == "shop" else frozenset())
    with pytest.raises(UnknownValueError, match="not listed the groups yet"):
        on.read("shop", "b")
    with pytest.raises(UnknownValueError, match="not listed the groups yet"):
        on.names("shop")
    existing = frozenset({"access", "b"})
    with pytest.raises(UnknownValueError, match="shop/b has not been reconciled yet"):
        on.read("shop", "b")
    assert on.names("shop") == ("access", "b")
    on.update(readings("b"), ())
    assert on.read("shop", "b").name == "b"
    with pytest.raises(UnknownGroupError):
        on.read("shop", "c")


def test_groups_are_listed_in_order_with_their_conditions() -> None:
    on = store(readings("b"), readings("a", namespace="z"))
    on.update(readings("a"), (condition("Ready", "True"),))
    assert [one.name for one in on.snapshot()] == [("shop", "a"), ("shop", "b"), ("z", "a")]
    assert on.snapshot()[0].conditions[0].type == "Ready"


def test_a_group_that_was_never_observed_exists_and_has_no_value() -> None:
    clock = HandClock()
    on = store(clock=clock)
    on.update_unobserved("shop", "access", ())
    (entry,) = on.snapshot()
    assert (entry.name, entry.readings, entry.conditions) == (("shop", "access"), None, ())
    assert entry.observed_at_unix_s == clock.unix_s(), "the first attempt"
    assert on.names("shop") == ("access",)
    with pytest.raises(UnknownValueError, match="shop/access could not be observed"):
        on.read("shop", "access")
    clock.now += 30.0
    on.update_unobserved("shop", "access", (condition("Ready", "False"),))
    (entry,) = on.snapshot()
    assert [one.type for one in entry.conditions] == ["Ready"]
    assert entry.observed_at_unix_s == clock.unix_s() - 30.0


def test_a_failed_observation_leaves_what_was_observed_to_age() -> None:
    clock = HandClock()
    on = store(readings(), clock=clock)
    clock.now += 30.0
    on.update_unobserved("shop", "access", ())
    assert on.read("shop", "access").lag_groups == 1200
    clock.now += 31.0
    with pytest.raises(UnknownValueError):
        on.read("shop", "access")


def test_conditions_in_place_of_an_observation_replace_its_values_but_not_its_time() -> None:
    on = store(readings())
    on.update_unobserved("shop", "access", (condition("Ready", "False"),))
    with pytest.raises(UnknownValueError):
        on.read("shop", "access")
    (entry,) = on.snapshot()
    assert entry.observed_at_unix_s == readings().at_unix_s
    on.update(readings(), ())
    assert on.read("shop", "access").lag_groups == 1200


def test_a_listener_receives_only_its_own_group_until_removed() -> None:
    async def story() -> None:
        on = store()
        with on.listening("shop", "access") as event:
            on.update(readings("other"), ())
            assert not event.is_set()
            on.update(readings(), ())
            assert event.is_set()
            event.clear()
            on.remove("shop", "access")
            assert event.is_set()
        assert on._listeners == {}

    asyncio.run(story())


def test_metrics_are_fresh_for_several_resyncs_and_at_least_a_minute() -> None:
    assert fresh_s(10.0) == 60.0
    assert fresh_s(120.0) == 360.0


@pytest.mark.parametrize(
    "metric", ["desiredWorkers", "lagLogGroups", "lagSeconds", "arrivalLogGroupsPerSecond"]
)
def test_an_unknown_value_is_never_a_number(metric: str) -> None:
    unknown = readings(wanted=None, lag_groups=None, lag_seconds=None, arrival_per_s=None)
    with pytest.raises(UnknownValueError, match="shop/access is currently unknown"):
        current_value(BY_KEDA_NAME[metric], unknown)


def test_active_is_lag_above_the_threshold() -> None:
    assert is_active(readings(lag_groups=1))
    assert not is_active(readings(lag_groups=0))
    assert not is_active(readings(lag_groups=10), above=10)
    assert is_active(readings(lag_groups=11), above=10)


def test_a_subscription_is_active_while_its_backlog_is_above_the_threshold() -> None:
    assert is_active(subscription_readings(backlog_logs=11), above=10)
    assert not is_active(subscription_readings(backlog_logs=10), above=10)
    with pytest.raises(UnknownValueError, match="loghub_subscription_backlog_logs"):
        is_active(subscription_readings(backlog_logs=None))
    for metric in ("lagLogGroups", "arrivalLogGroupsPerSecond"):
        with pytest.raises(UnknownValueError):
            current_value(BY_KEDA_NAME[metric], subscription_readings())
    with pytest.raises(UnknownValueError):
        current_value(BY_KEDA_NAME["backlogLogs"], readings())


def test_what_waits_to_be_retried_is_active() -> None:
    """Nobody would hand it over when its time comes."""
    assert is_active(readings(lag_groups=0, retry_groups=1))
    assert not is_active(readings(lag_groups=3, retry_groups=7), above=10)
    assert is_active(readings(lag_groups=3, retry_groups=8), above=10)
    assert is_active(readings(lag_groups=11, retry_groups=None), above=10)
    with pytest.raises(UnknownValueError, match="loghub_retry_log_groups"):
        is_active(readings(lag_groups=0, retry_groups=None))
    with pytest.raises(UnknownValueError):
        current_value(BY_KEDA_NAME["desiredWorkers"], readings(retry_groups=None))


def test_logs_without_a_checkpoint_count_as_lag() -> None:
    """Without a checkpoint the lag is not known; without workers it would stay so forever."""
    assert is_active(readings(lag_groups=None, assignable=4), above=1000)


def test_an_unavailable_log_service_leaves_activity_unknown() -> None:
    with pytest.raises(UnknownValueError):
        is_active(readings(lag_groups=None, assignable=None))
    with pytest.raises(UnknownValueError):
        is_active(readings(lag_groups=None, assignable=0))


def test_the_offered_metrics_are_the_defined_ones() -> None:
    group, subscription = readings(), subscription_readings()
    values = {
        metric: current_value(definition, subscription if metric == "backlogLogs" else group)
        for metric, definition in BY_KEDA_NAME.items()
    }
    assert values == {
        "desiredWorkers": 2.0,
        "lagLogGroups": 1200.0,
        "retryLogGroups": 0.0,
        "lagSeconds": 42.25,
        "arrivalLogGroupsPerSecond": 12.5,
        "backlogLogs": 700.0,
    }
