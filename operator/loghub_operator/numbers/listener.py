"""Who hears of the rounds.

What for: `reconcile` tells it what a round found and how it ended; this one does nothing with it.
What it must not know: servers. Read next: `loghub_operator.numbers.publishing`.
"""

from loghub_operator.api.status import Condition
from loghub_operator.scaling.readings import GroupReadings


class Listener:
    """Hears, and keeps nothing."""

    def found(self, readings: GroupReadings, conditions: tuple[Condition, ...]) -> None:
        """What a round found."""

    def gone(self, namespace: str, name: str) -> None:
        """The group is gone, or going."""

    def round_ended(self, outcome: str, seconds: float) -> None:
        """``done``, ``failed`` or ``broken``."""
