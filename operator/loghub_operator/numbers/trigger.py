"""What a KEDA trigger says about itself.

What for: the metadata of a ScaledObject's trigger, understood once. What it must not know: gRPC,
numbers. Read next: `loghub_operator.numbers.keda`.

``consumerGroup``         name of the LogHubConsumerGroup, in the ScaledObject's own namespace
``metric``                wanted (default), lagLogGroups, lagSeconds or arrivalLogGroupsPerSecond
``target``                the metric's target, above 0; for ``wanted`` it may be left out (1)
``activationLogGroups``   active above so many log groups of lag; default 0
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loghub_operator.numbers.offers import BY_WORD, Offer

LARGEST_TARGET = 1e15  # a whole number of KEDA's has 63 bits


class BadTriggerError(ValueError):
    """The metadata make no sense; in a person's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One trigger's wish."""

    namespace: str
    group: str
    offer: Offer
    target: float
    activation: float


def trigger_of(namespace: str, metadata: Mapping[str, str]) -> Trigger:
    """Raises `BadTriggerError`. Keys of KEDA itself, such as ``scalerAddress``, are none of ours."""
    group = metadata.get("consumerGroup", "")
    if not namespace or not group:
        raise BadTriggerError("the trigger's metadata need consumerGroup: the LogHubConsumerGroup's name")
    offer = BY_WORD.get(metadata.get("metric", "wanted"))
    if offer is None:
        raise BadTriggerError(f"metric is one of {', '.join(BY_WORD)}, not {metadata['metric']!r:.80}")
    if "target" not in metadata and offer.target is None:
        raise BadTriggerError(f"metric {offer.word} needs a target")
    target = _number("target", metadata, offer.target or 0.0)
    if not 0 < target <= LARGEST_TARGET:
        raise BadTriggerError(f"target must be above 0 and at most {LARGEST_TARGET:g}")
    activation = _number("activationLogGroups", metadata, 0.0)
    if activation < 0:
        raise BadTriggerError("activationLogGroups must not be below 0")
    return Trigger(namespace=namespace, group=group, offer=offer, target=target, activation=activation)


def _number(key: str, metadata: Mapping[str, str], otherwise: float) -> float:
    try:
        value = float(metadata.get(key, otherwise))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadTriggerError(f"{key} is no number: {metadata[key]!r:.80}")
    return value
