"""What the tests of both brokers, of Kafka's and of Pulsar's endpoint, share: a clock and access keys."""

from loghub.clock import SystemClock
from loghub_service.access_keys import AccessKey, Right

GUARD_S = 120.0  # against a hang
PROJECT = "demo"
KEY = AccessKey(key_id="testKeyId", secret="test#Secret")
READER = AccessKey(key_id="reader", secret="r", projects=frozenset({PROJECT}), rights=frozenset({Right.READ}))
WRITER = AccessKey(
    key_id="writer", secret="w", projects=frozenset({PROJECT}), rights=frozenset({Right.WRITE})
)
STRANGER = AccessKey(key_id="stranger", secret="s", projects=frozenset({"other"}))


class ShiftedClock(SystemClock):
    """The machine's clock; a test may move it forward, and set its wall clock."""

    def __init__(self) -> None:
        self.ahead_s = self.wall_ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def unix_s(self) -> float:
        return super().unix_s() + self.ahead_s + self.wall_ahead_s
