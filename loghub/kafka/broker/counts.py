"""What the broker counts, for metrics. Names that clients choose are no part of it."""

from collections import Counter


class BrokerCounts:
    """Totals since the start; used on the event loop only."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # by API
        self.errors: Counter[tuple[str, str]] = Counter()  # by API and error code
        self.failed_requests = 0  # by an error of ours
        self.refused_logins = 0
        self.received_bytes = 0  # of requests
        self.sent_bytes = 0  # of answers
        self.produced_logs = 0
        self.fetched_logs = 0
