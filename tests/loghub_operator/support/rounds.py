"""A round from its parts: what an object and an observation make `plan` decide."""

from collections.abc import Iterable
from dataclasses import replace

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.model.actions import Plan
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan import planner
from loghub_operator.plan.subject import subject_of


def plan(
    resource: LogHubConsumerGroup, observed: ObservedState, now: float, *, drift: Iterable[FieldPath] = ()
) -> Plan:
    """As both loops plan; ``drift`` are the fields that another client has changed."""
    return planner.plan(replace(subject_of(resource, observed), drift=tuple(drift)), now)
