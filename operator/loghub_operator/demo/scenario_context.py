"""What the story of the demo can see and do.

What for: `scenario` is written against it, and tried without processes. What it must not know: the
steps. Read next: `loghub_operator.demo.scenario`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loghub_operator.local.snapshot import GroupSnapshot

LOOK_S = 0.2


@dataclass(slots=True, kw_only=True)
class Scene:
    """``look_now`` and the other callables give what is known at this moment."""

    name: str  # of the LogHubConsumerGroup
    cr_file: Path
    look_now: Callable[[], GroupSnapshot | None]
    rows: Callable[[], int]  # visible in the sink
    clock_s: Callable[[], float]  # since the demo began
    say: Callable[[str], None]
    first_row_s: float | None = None

    @property
    def look(self) -> GroupSnapshot | None:
        return self.look_now()

    @property
    def elapsed_s(self) -> float:
        return self.clock_s()

    async def until(self, holds: Callable[[], bool], what: str, *, bound_s: float | None) -> bool:
        """Wait until it holds; False, and said, once the bound is over."""
        try:
            async with asyncio.timeout(bound_s):
                while not holds():
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            self.say(f"DEMO: not seen within {bound_s:.0f} s, goes on: {what}")
            return False
        return True
