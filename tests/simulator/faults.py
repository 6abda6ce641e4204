"""The dice of one schedule: which fault happens where, and how often each kind has happened.

Everything random in a simulation comes from one seed, so that a schedule can be replayed.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """The kinds of faults; the value is printed with its count."""

    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    DELAYED = "request or answer delayed for seconds"
    REPEATED = "request delivered twice"
    REORDERED = "request delivered after a later one"
    SERVICE_CRASHED = "service crashed between requests"
    DISK_CRASH = "service crashed before a write or sync of the disk"
    COMMIT_CRASH = "service crashed before or after a commit of metadata"
    SYNC_FAILED = "sync failed, and the service ended"
    UNSYNCED_LOST = "unsynced changes dropped or torn"
    SERVICE_PAUSED = "service paused"
    WORKER_CRASHED = "worker crashed between steps"
    WORKER_CRASHED_IN_CALL = "worker crashed in a request"
    WORKER_CRASHED_IN_COMMIT = "worker crashed between two steps of the commit log"
    WORKER_PAUSED = "worker paused"
    INTERLEAVED = "others acted within a step of a worker"
    RESHARDED = "shard split or merged"
    LINK_LIED = "link made, and reported as existing"
    SERVICE_STOPPED = "service stopped cleanly"
    CONSUMER_STOPPED = "consumer asked to stop"
    PROCESSOR_RAISED = "processor raised"
    ROLLED_BACK = "processor rolled back"
    CONNECTION_LOST = "connection of a consumer lost"
    ACK_LATE = "acknowledgment arrived after its connection was lost"
    RECEIPTED = "log acknowledged with a receipt"
    ACK_LOST = "log acknowledged without a receipt, and delivered again"
    # The service must refuse to start until the data is repaired.
    METADATA_OLDER = "metadata restored from an older copy"
    TAIL_LOST = "acknowledged records at the end of a shard lost"
    BIT_FLIPPED = "bit flipped in the last record of a shard"


# How probable a fault is where it may happen.
PROBABILITY = {
    Fault.REQUEST_LOST: 0.02,
    Fault.ANSWER_LOST: 0.02,
    Fault.DELAYED: 0.03,
    Fault.REPEATED: 0.02,
    Fault.REORDERED: 0.05,
    Fault.CONNECTION_LOST: 0.03,
    Fault.ACK_LATE: 0.5,
    Fault.DISK_CRASH: 0.01,
    Fault.COMMIT_CRASH: 0.01,
    Fault.SYNC_FAILED: 0.006,
    Fault.WORKER_CRASHED_IN_CALL: 0.005,
    Fault.WORKER_CRASHED_IN_COMMIT: 0.02,
    Fault.INTERLEAVED: 0.1,
    Fault.LINK_LIED: 0.12,
    Fault.METADATA_OLDER: 0.15,
    Fault.TAIL_LOST: 0.15,
    Fault.BIT_FLIPPED: 0.15,
}


class ServiceCrashed(BaseException):
    """The service's process died. No code of the service may handle this."""


class WorkerCrashed(BaseException):
    """A worker's process died. No code of the worker may handle this."""


@dataclass
class Dice:
    """``active`` is False while a schedule ends: from then on nothing fails."""

    seed: int
    active: bool = True
    counts: Counter[Fault] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def happens(self, fault: Fault) -> bool:
        if not self.active or self.random.random() >= PROBABILITY[fault]:
            return False
        self.counts[fault] += 1
        return True

    # `loghub_service.ports.Random`

    def hex(self, length: int) -> str:
        return f"{self.random.getrandbits(4 * length):0{length}X}"

    def below(self, bound: int) -> int:
        return self.random.randrange(bound)

    def token_hex(self, size: int | None = None) -> str:
        """Instead of `secrets.token_hex`."""
        return self.hex(2 * (size or 32)).lower()
