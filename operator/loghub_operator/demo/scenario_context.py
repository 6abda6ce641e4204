"""What the scenario of the demo can observe and do.

`loghub_operator.demo.scenario` needs only this context, so tests run it without processes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loghub_operator.local.snapshot import GroupSnapshot

POLL_S = 0.2


@dataclass(slots=True, kw_only=True)
class ScenarioContext:
    """``latest_snapshot`` and the other callables return the current values."""

    name: str  # of the LogHubConsumerGroup
    cr_file: Path
    latest_snapshot: Callable[[], GroupSnapshot | None]
    rows: Callable[[], int]  # visible in the sink
    clock_s: Callable[[], float]  # since the demo began
    say: Callable[[str], None]
    first_row_s: float | None = None

    @property
    def snapshot(self) -> GroupSnapshot | None:
        return self.latest_snapshot()

    @property
    def elapsed_s(self) -> float:
        return self.clock_s()

    async def until(self, holds: Callable[[], bool], what: str, *, bound_s: float | None) -> bool:
        """Wait until `holds` returns True. Reports it and returns False once the bound has passed."""
        try:
            async with asyncio.timeout(bound_s):
                while not holds():
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self.say(f"DEMO: not seen within {bound_s:.0f} s, goes on: {what}")
            return False
        return True
