"""The states of `group_system`: a group, its consumers, and what is on its way between them."""

from typing import NamedTuple

from tests.properties.domain.numbered_group import TIMEOUT, shards_of

NOT_ANSWERED = -1


class Sent(NamedTuple):
    """A heartbeat on its way, or its answer on the way back. All shards are bits."""

    held: int
    age: int
    answer: int = NOT_ANSWERED
    lost: int = 0  # of the answer


class Client(NamedTuple):
    """One consumer process. ``assigned`` is the last answer it received; ``quiet`` for how long the running
    service has received nothing of it; ``late`` what an abandoned or copied heartbeat reports."""

    works_on: int = 0
    assigned: int = 0
    age: int = 0
    quiet: int = TIMEOUT
    lost: int = 0
    sent: Sent | None = None
    late: int = NOT_ANSWERED


class System(NamedTuple):
    """``group`` is a number of `NumberedGroup`, ``paused`` for how long the service has not run."""

    group: int
    clients: tuple[Client, ...]
    next_shard: int
    paused: int = 0


def check_exclusive(system: System) -> None:
    busy = 0
    for client in system.clients:
        holds = client.works_on & ~client.lost
        assert not busy & holds, f"two consumers work on shards {list(shards_of(busy & holds))}"
        busy |= holds
