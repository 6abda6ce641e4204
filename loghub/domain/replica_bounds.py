"""The bounds of the number of workers, as the operator keeps to them and `kubectl loghub plan` foretells."""

from dataclasses import dataclass
from typing import Literal

# What limits a number of workers; the last two are of decisions by the load.
Bound = Literal["Minimum", "Maximum", "Shards", "Step", "Keys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """The number of workers is between these; ``shards`` None: unknown, so it does not limit."""

    minimum: int
    maximum: int
    shards: int | None

    def cut(self, workers: int) -> tuple[int, Bound | None]:
        """The number within the bounds, and the last bound that limited it."""
        cut: int = workers
        bound: Bound | None = None
        if cut > self.maximum:
            cut, bound = self.maximum, "Maximum"
        elif cut < self.minimum:
            cut, bound = self.minimum, "Minimum"
        if self.shards is not None and cut > self.shards:
            cut, bound = self.shards, "Shards"
        return cut, bound
