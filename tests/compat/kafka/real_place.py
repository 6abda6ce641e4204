"""A real Kafka broker as the place of a scenario: the clients must do the same there as with the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import NewPartitions

from tests import kafka
from tests.compat.kafka.client_programs import TOPIC, KafkaPlace


class RealPlace(KafkaPlace):
    """Has no shards: what a split adds are two more partitions. Its offsets have no gaps."""

    is_real = True

    def __init__(self, broker: kafka.Broker, folder: Path) -> None:
        super().__init__(folder)
        self.broker = broker

    @property
    def servers(self) -> str:
        return self.broker.sasl_tls if self.authority else self.broker.sasl

    @property
    def login(self) -> tuple[str, str]:
        return "alice", kafka.PASSWORDS["alice"]

    def create(self, *, shards: int, topic: str = TOPIC) -> None:
        self.broker.create_topic(topic, partitions=shards)

    def split(self, shard: int, *, topic: str = TOPIC) -> None:
        count = len(self.broker.admin.list_topics(topic, 30).topics[topic].partitions)
        done = self.broker.admin.create_partitions([NewPartitions(topic, count + 2)])
        done[topic].result(kafka.GUARD_S)

    def kill(self) -> None:
        self.broker.stop()

    def start_again(self) -> None:
        self.broker.start()

    def explain(self) -> str:
        return super().explain() + self.broker.log_tail()


@contextmanager
def a_real_place(folder: Path) -> Iterator[RealPlace]:
    with kafka.running_broker(folder) as broker:
        place = RealPlace(broker, folder)
        try:
            yield place
        except BaseException:
            print(place.explain())
            raise
        finally:
            place.end()
