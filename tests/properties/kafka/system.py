"""The states of `group_system`: a Kafka group, its clients, and what is on its way between them."""

from dataclasses import dataclass
from typing import NamedTuple

from loghub_service.kafka.coordinator.group import GroupErrorCode, MemberProtocol, TopicPartition
from loghub_service.kafka.coordinator.requests import Answer

PARTITION = TopicPartition(1, 0)
PARTITIONS = 2
OUT, JOINING, JOINED, SYNCING, MEMBER, FENCED = "out", "joining", "joined", "syncing", "member", "fenced"
Late = tuple[str, str, int] | None  # kind, member id, generation
# A member with other metadata also prefers another assignor.
PROTOCOLS = {
    b"0": (MemberProtocol("range", b"0"), MemberProtocol("sticky", b"")),
    b"1": (MemberProtocol("sticky", b"1"), MemberProtocol("range", b"")),
}


class Client(NamedTuple):
    """One process. ``request`` is the number of its request on the way, and ``inbox`` the answer that it has
    not read. ``roster`` has the members that it must assign to if it leads. ``owned`` has partitions as bits.
    """

    member_id: str = ""
    generation: int = -1
    phase: str = OUT
    request: int = 0
    inbox: Answer | None = None
    roster: tuple[str, ...] = ()
    owned: int = 0
    metadata: bytes = b"0"
    late: Late = None


class System(NamedTuple):
    """``group`` is a number of `NumberedKafkaGroup`."""

    group: int
    clients: tuple[Client, ...]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Clients by their letters; ``instances`` has the instance id of each, or "-" for a dynamic member."""

    names: str
    instances: str
    late: bool = True
    admin: bool = True  # resets, deletion and expiry
    settles_every: int = 7  # of how many systems one is let settle


def check_exclusive(setup: Setup, system: System) -> None:
    busy: dict[tuple[int, int], int] = {}
    for i, client in enumerate(system.clients):
        for partition in range(PARTITIONS):
            if client.owned >> partition & 1:
                other = busy.setdefault((client.generation, partition), i)
                is_one = setup.instances[other] == setup.instances[i] != "-"
                assert other == i or is_one, f"partition {partition} has two owners in one generation"


def after_error(client: Client, error: GroupErrorCode) -> Client:
    """As the libraries do: rejoin, rejoin without a member id, or stop."""
    if error is GroupErrorCode.NONE:
        return client
    if error is GroupErrorCode.FENCED_INSTANCE_ID:
        return Client(phase=FENCED, late=client.late, metadata=client.metadata)
    if error in (GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.GROUP_MAX_SIZE_REACHED):
        return Client(late=client.late, metadata=client.metadata)
    assert error in (GroupErrorCode.REBALANCE_IN_PROGRESS, GroupErrorCode.ILLEGAL_GENERATION), error
    if error is GroupErrorCode.REBALANCE_IN_PROGRESS and client.phase == MEMBER:
        return client._replace(phase=OUT)  # it keeps its partitions until it sends JoinGroup
    return client._replace(phase=OUT, owned=0, request=0)


def put(system: System, i: int, client: Client) -> System:
    clients = system.clients
    return system._replace(clients=(*clients[:i], client, *clients[i + 1 :]))
