"""What the broker counts, for metrics. Names that clients choose are no part of it."""

from collections import Counter

from loghub.kafka.wire.apis import ApiKey


class BrokerCounts:
    """Totals since the start; used on the event loop only."""

    def __init__(self) -> None:
        # By API. Each is there from the start: a rate would not see the first value of a series.
        self.requests: Counter[str] = Counter({api.name: 0 for api in ApiKey})
        self.errors: Counter[tuple[str, str]] = Counter()  # by API and error code
        self.failed_requests = 0  # by an error of ours
        self.refused_logins = 0
        self.received_bytes = 0  # of requests
        self.sent_bytes = 0  # of answers
        self.produced_logs = 0
        self.fetched_logs = 0
