"""Bounds on what Kafka clients may occupy: sizes in bytes, durations in seconds."""

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The defaults are for the embedded service; tests choose smaller ones."""

    connections: int = 2000  # open at the same time
    frame_bytes: int = 11 * MIB  # of a request: a batch of `group_bytes`, and what surrounds it
    login_frame_bytes: int = 16 * KIB  # of a request before the login
    free_bytes: int = 16 * KIB  # of a connection's requests; what is more takes from the shared budget
    group_bytes: int = 10 * MIB  # of a produced batch after decompression, and of the log group it becomes
    queued_requests: int = 8  # of a connection: received, and not answered yet
    login_s: float = 15  # from the connection to the end of a successful login
    refusal_delay_s: float = 0.5  # before a refused login is answered
    frame_s: float = 60  # from the first byte of a request to its last
    send_grace_s: float = 5  # the same, while others find no memory for their requests
    memory_wait_s: float = 30  # for a part of the shared budget
    idle_s: float = 600  # without a request
    answer_s: float = 60  # for a client to read what was sent
    unread_grace_s: float = 5  # the same, while others find no memory for their answers
    close_s: float = 5  # for requests in progress when the service stops
    fetch_bytes: int = 16 * MIB  # of one answer, whatever the client allows; the first batch may exceed it
    fetch_wait_s: float = 60  # of a long poll, whatever the client asks for
    session_partitions: int = 100_000  # that all fetch sessions remember; 40 MB
    topics: int = 1000  # in one request
    partitions: int = 10_000  # in one request
