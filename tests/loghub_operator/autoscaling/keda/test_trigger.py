"""The metadata of a trigger: defaults, all settings, and what is rejected."""

import pytest

from loghub_operator.autoscaling.metric_catalog import BadTriggerError, trigger_of


def test_a_trigger_with_only_a_group_uses_the_defaults() -> None:
    trigger = trigger_of("shop", {"scalerAddress": "x:1", "consumerGroup": "access"})
    assert (trigger.namespace, trigger.group) == ("shop", "access")
    assert (trigger.definition.metric, trigger.target, trigger.activation) == (
        "loghub_desired_workers",
        1.0,
        0.0,
    )


def test_all_settings_are_read() -> None:
    given = {
        "consumerGroup": "a",
        "metric": "lagSeconds",
        "targetValue": "2.5",
        "activationLagLogGroups": "10",
    }
    trigger = trigger_of("shop", given)
    assert (trigger.definition.metric, trigger.target, trigger.activation) == (
        "loghub_lag_seconds",
        2.5,
        10.0,
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "require consumerGroup"),
        ({"consumerGroup": "a", "metric": "lag"}, "metric must be one of desiredWorkers, .* not 'lag'"),
        ({"consumerGroup": "a", "metric": "x" * 500}, "not 'x{79}$"),
        ({"consumerGroup": "a", "metric": "lagSeconds"}, "lagSeconds requires a targetValue"),
        ({"consumerGroup": "a", "targetValue": "many"}, "targetValue is not a number: 'many'"),
        ({"consumerGroup": "a", "targetValue": "nan"}, "targetValue is not a number"),
        ({"consumerGroup": "a", "targetValue": "0"}, "targetValue must be greater than 0"),
        ({"consumerGroup": "a", "targetValue": "-1"}, "targetValue must be greater than 0"),
        ({"consumerGroup": "a", "targetValue": "1e19"}, r"at most 1e\+15"),
        ({"consumerGroup": "a", "activationLagLogGroups": "-1"}, "must be at least 0"),
        ({"consumerGroup": "a", "activationLagLogGroups": "inf"}, "activationLagLogGroups is not a number"),
    ],
)
def test_invalid_metadata_is_rejected_with_a_message(metadata: dict[str, str], message: str) -> None:
    with pytest.raises(BadTriggerError, match=message):
        trigger_of("shop", metadata)


def test_a_namespace_in_the_metadata_is_ignored() -> None:
    assert trigger_of("shop", {"consumerGroup": "a", "namespace": "other"}).namespace == "shop"
