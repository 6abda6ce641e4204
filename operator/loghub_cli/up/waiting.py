"""`loghub up --wait-for`: whether the group has reached a state, and what stands against it."""

import asyncio
from dataclasses import dataclass

from loghub.clock import Clock
from loghub_cli.up.live_view import Screen
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_operator.api import Status, fields
from loghub_operator.api.conditions import ConditionType, GroupReason, SuspendedReason
from loghub_operator.api.status import Condition, Lag

READY, CAUGHT_UP = "ready", "caught-up"


@dataclass(frozen=True, slots=True)
class WaitFor:
    """What is waited for, since when. Pure."""

    state: str | None  # ready | caught-up; None: nothing
    since_unix_s: float

    def is_reached(self, snapshot: GroupSnapshot) -> bool:
        ready = self.state == READY and _is_true(snapshot.status, ConditionType.READY)
        return ready or (self.state == CAUGHT_UP and snapshot.caught_up)

    def is_hopeless(self, snapshot: GroupSnapshot) -> bool:
        """Whether the group got stuck since; that it was stuck before may be what was corrected. A group that
        its spec suspends does not catch up either, and what another object has is not had by waiting.
        """
        if self.state is not None and _of_another(snapshot.status):
            return True
        if self.state == CAUGHT_UP and _suspended(snapshot.status) and not self.is_reached(snapshot):
            return True
        return self.state is not None and any(
            condition.type == ConditionType.STALLED
            and condition.status == "True"
            and fields.unix_s(condition.last_transition_time) >= int(self.since_unix_s)
            for condition in snapshot.status.conditions
        )

    def not_reached(self, snapshot: GroupSnapshot | None) -> str:
        """Why not, in the words of the conditions."""
        conditions = snapshot.status.conditions if snapshot is not None else ()
        against = [one for one in conditions if one.type == ConditionType.READY and one.status != "True"]
        against += [one for one in conditions if one.type == ConditionType.STALLED and one.status == "True"]
        if snapshot is not None:
            against += _of_another(snapshot.status)
        if self.state == CAUGHT_UP and snapshot is not None:
            against += _suspended(snapshot.status)
        why = "; ".join(f"{one.type} {one.status} {one.reason}: {one.message}" for one in against)
        lag = snapshot.status.lag if snapshot is not None and self.state == CAUGHT_UP else None
        return f"not {self.state}: {why or _behind(lag) or 'nothing was observed'}"


def _behind(lag: Lag | None) -> str:
    """The real SLS does not count the logs."""
    if lag is None or not (lag.logs or lag.seconds):
        return ""
    return f"{lag.logs} logs behind" if lag.logs else f"{lag.seconds} s behind"


def _suspended(status: Status) -> list[Condition]:
    """By its spec, and not for a while, as by a checkpoint reset."""
    kind = (ConditionType.SUSPENDED, "True", SuspendedReason.SUSPENDED)
    return [one for one in status.conditions if (one.type, one.status, one.reason) == kind]


def _of_another(status: Status) -> list[Condition]:
    """The consumer group is another object's."""
    kind = (ConditionType.GROUP_SYNCED, GroupReason.OWNERSHIP_CONFLICT)
    return [one for one in status.conditions if (one.type, one.reason) == kind]


def _is_true(status: Status, kind: ConditionType) -> bool:
    return any((one.type, one.status) == (kind, "True") for one in status.conditions)


class WaitingScreen(Screen):
    """A screen that ends the run once the group has reached the state, or cannot."""

    def __init__(
        self, title: str, *, wait_for: str | None, live: bool, clock: Clock, stop: asyncio.Event
    ) -> None:
        self._kept: list[str] = []
        super().__init__(title=title, clock=clock, notes=lambda: tuple(self._kept), live=live)
        self._is_live = live
        self._wait = WaitFor(wait_for, clock.unix_s())
        self._stop = stop
        self.is_reached = False

    @property
    def failure(self) -> str:
        """What was waited for and is not reached; "" if nothing was, or it is."""
        return "" if self._wait.state is None or self.is_reached else self._wait.not_reached(self.last)

    def keep(self, text: str) -> None:
        """Shows what stays true: in the live view for as long as it is there, and whole."""
        if self._is_live:
            self._kept.append(text)
            self.refresh()
        else:
            self.say(text)

    def show(self, snapshot: GroupSnapshot) -> None:
        super().show(snapshot)
        self.is_reached = self.is_reached or self._wait.is_reached(snapshot)
        if self.is_reached or self._wait.is_hopeless(snapshot):
            self._stop.set()
