"""Decide what to do about one consumer group.

What for: the one set of decisions for the cluster and for `loghub up`. What it must not
know: how anything is observed or carried out, real time. Read next: `loghub_operator.model`
(the types), then the executors: `loghub_operator.apply`, `loghub_operator.local`.
"""

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.model import Observed, Plan


def plan(resource: LogHubConsumerGroup, observed: Observed, now: float) -> Plan:
    """What to do now, and what to tell. Pure; ``now`` in unix seconds."""
    raise NotImplementedError
