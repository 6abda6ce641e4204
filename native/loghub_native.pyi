def records_of(group: bytes, raw: bool, most: int) -> tuple[bytes, int, int, int] | None:
    """The records of the first ``most`` logs of a group one after the other, their number, and the times of
    the first and of the youngest in ms; None for a group that only the Python implementation can judge."""

def count_logs(group: bytes) -> int | None:
    """The number of logs in a valid group; None for one that only the Python implementation can judge."""
