"""A consumer of a subscription through the port, for tests of the command line."""

from dataclasses import dataclass, field

from loghub.client.port import LogHub
from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.loggroup import decode, split
from loghub.wire.subscriptions import Exchange, Exchanged, Run

Place = tuple[int, int]  # a shard and a position
# More than a test waits for one answer, and less than the guard of its requests.
WAIT_S = 20.0


@dataclass
class PortConsumer:
    """``got`` has the lines that it was sent and has not settled, by place."""

    client: LogHub
    logstore: str
    subscription: str
    name: str
    type: SubscriptionType = SubscriptionType.SHARED
    got: dict[Place, str] = field(default_factory=dict)
    session: str = ""
    number: int = 0

    def receive(self, max_logs: int = 1000, *, wait_s: float = WAIT_S) -> dict[Place, str]:
        """The logs of the next answer, by place."""
        self.number += 1
        new: dict[Place, str] = {}
        for group in self._exchange(number=self.number, max_logs=max_logs, wait_s=wait_s).groups:
            assert group.body is not None
            (decoded,) = map(decode, split(group.body.unpacked(max_size=1 << 24)))
            indexes = range(len(decoded.logs)) if group.indexes is None else group.indexes
            for index in indexes:
                place = (group.shard, position_of(group.ordinal, index))
                line = dict(decoded.logs[index].contents)["line"]
                new[place] = line if isinstance(line, str) else line.decode()
        self.got |= new
        return new

    def ack(self, *places: Place) -> None:
        """Durable when it returns."""
        runs: dict[int, list[Run]] = {}
        for shard, position in sorted(places):
            runs.setdefault(shard, []).append((position, position + 1))
            self.got.pop((shard, position), None)
        self._exchange(acks={shard: tuple(one) for shard, one in runs.items()})

    def leave(self) -> None:
        self._exchange(leave=True)

    def _exchange(self, **fields: object) -> Exchanged:
        answer = self.client.exchange(
            self.logstore,
            self.subscription,
            Exchange(
                consumer=self.name,
                type=self.type,
                session=self.session,
                max_bytes=1 << 20,
                **fields,  # type: ignore[arg-type]
            ),
        )
        self.session = answer.session
        return answer
