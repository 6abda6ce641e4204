"""A reason to keep the number of workers although another one is needed."""

from dataclasses import dataclass

from loghub_operator.api.conditions import ActiveReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingGate:
    """Why the number is kept: a reason, and a message for users."""

    reason: ActiveReason
    message: str
