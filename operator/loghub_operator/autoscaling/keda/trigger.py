"""The metadata of a KEDA trigger, parsed and checked.

``consumerGroup``            name of the LogHubConsumerGroup, in the ScaledObject's own namespace
``metric``                   desiredWorkers (default), lagLogGroups, lagSeconds or
                             arrivalLogGroupsPerSecond
``targetValue``              target of the metric, greater than 0; default 1 for ``desiredWorkers``,
                             required for the other metrics
``activationLagLogGroups``   the group is active while its lag is above this number of log groups;
                             default 0
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loghub_operator.autoscaling.metric_catalog import BY_KEDA_NAME, AutoscalingMetric

MAX_TARGET = 1e15  # KEDA's integers are signed 64-bit


class BadTriggerError(ValueError):
    """The metadata are invalid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaTrigger:
    """One trigger's settings."""

    namespace: str
    group: str
    definition: AutoscalingMetric
    target: float
    activation: float


def trigger_of(namespace: str, metadata: Mapping[str, str]) -> KedaTrigger:
    """The checked trigger. Raises `BadTriggerError`. The metadata also contain KEDA's own keys, such as
    ``scalerAddress``, which are ignored."""
    group = metadata.get("consumerGroup", "")
    if not namespace or not group:
        raise BadTriggerError("the trigger's metadata require consumerGroup: the LogHubConsumerGroup's name")
    definition = BY_KEDA_NAME.get(metadata.get("metric", "desiredWorkers"))
    if definition is None:
        raise BadTriggerError(
            f"metric must be one of {', '.join(BY_KEDA_NAME)}, not {metadata['metric']!r:.80}"
        )
    if "targetValue" not in metadata and definition.target is None:
        raise BadTriggerError(f"metric {definition.keda_name} requires a targetValue")
    target = _number("targetValue", metadata, definition.target or 0.0)
    if not 0 < target <= MAX_TARGET:
        raise BadTriggerError(f"targetValue must be greater than 0 and at most {MAX_TARGET:g}")
    activation = _number("activationLagLogGroups", metadata, 0.0)
    if activation < 0:
        raise BadTriggerError("activationLagLogGroups must be at least 0")
    return KedaTrigger(
        namespace=namespace, group=group, definition=definition, target=target, activation=activation
    )


def _number(key: str, metadata: Mapping[str, str], default: float) -> float:
    try:
        value = float(metadata.get(key, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadTriggerError(f"{key} is not a number: {metadata[key]!r:.80}")
    return value
