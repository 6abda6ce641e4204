"""Where logs come from that could not be delivered."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The group that reads the logs."""

    project: str
    logstore: str
    consumer_group: str
