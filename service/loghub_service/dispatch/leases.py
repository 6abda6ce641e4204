"""The sessions of consumers over HTTP while the service runs: their leases end by the clock."""

import asyncio

from loghub.clock import Clock
from loghub_service.dispatch.driver import Dispatches
from loghub_service.dispatch.sessions import LOOK_S, LeasedConsumer, SessionTable


class Leases(SessionTable):
    """All sessions of a service. Used on the event loop only."""

    def __init__(self, clock: Clock, dispatches: Dispatches) -> None:
        super().__init__()
        self._clock = clock
        self._dispatches = dispatches
        self._timer: asyncio.TimerHandle | None = None

    def add(self, session: LeasedConsumer) -> None:
        super().add(session)
        if self._timer is None:
            self._again()

    def close(self) -> None:
        """Stop looking at leases, because the service stops."""
        if self._timer is not None:
            self._timer.cancel()

    def end(self, session: LeasedConsumer) -> None:
        """End the session: what is out at it goes to others."""
        self.remove(session)
        session.closed()
        dispatch = self._dispatches.get(*session.subscription)
        if dispatch is not None:
            dispatch.leave(session)

    def look(self) -> None:
        """End the sessions whose lease is over."""
        for session in self.ended(self._clock.monotonic_s()):
            self.end(session)

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()
        if len(self):
            self._again()
