"""The requests of the membership; by its number the answer to each is recognized."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """Send a heartbeat that reports these shards."""

    number: int
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """Tell the service that this consumer leaves the group."""

    number: int
