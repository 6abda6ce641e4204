"""kafka-python behind the commands of `client`."""

import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import OffsetAndMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError, UnsupportedCodecError
from python_settings import connection

_MIN_POLL_MS = 2000

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPythonLibrary:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._base = connection(settings)
        if settings["ca"]:
            self._base["ssl_cafile"] = settings["ca"]
        self._settings = settings
        self._producer: KafkaProducer | None = None
        self._consumer: KafkaConsumer | None = None

    def produce(self, topic: str, records: list[list[Any]]) -> int:
        if self._producer is None:
            self._producer = KafkaProducer(
                **self._base,
                linger_ms=self._settings["lingerMs"],
                compression_type=self._settings["codec"] or None,
            )
        sent = [
            self._producer.send(
                topic,
                key=key.encode(),
                value=value.encode(),
                partition=None if partition < 0 else partition,
            )
            for partition, key, value in records
        ]
        self._producer.flush(120)
        return sum(not one.succeeded() for one in sent)

    @property
    def consumer(self) -> KafkaConsumer:
        if self._consumer is None:
            settings = self._settings
            more: dict[str, Any] = {}
            if settings["instance"]:
                more["group_instance_id"] = settings["instance"]
            if settings["assignor"]:
                names = settings["assignor"].split(",")
                more["partition_assignment_strategy"] = [_ASSIGNORS[name] for name in names]
            self._consumer = KafkaConsumer(
                **self._base,
                **more,
                group_id=settings["group"] or None,
                auto_offset_reset=settings["reset"] or "earliest",
                enable_auto_commit=settings["autoCommit"],
                auto_commit_interval_ms=200,
                session_timeout_ms=settings["sessionS"] * 1000,
                heartbeat_interval_ms=500,
            )
        return self._consumer

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(topics)

    def assign(self, places: list[list[Any]]) -> None:
        self.consumer.assign([TopicPartition(t, p) for t, p, _ in places])
        for topic, partition, offset in places:
            place = TopicPartition(topic, partition)
            if offset == -2:
                self.consumer.seek_to_beginning(place)
            else:
                self.consumer.seek(place, offset)

    def poll(self, timeout_s: float) -> list[list[Any]]:
        """Longer than the others: if this ends while SyncGroup is answered, version 3.0.12 never notices that
        it has joined, and sends no heartbeat either."""
        try:
            found = self.consumer.poll(max(int(timeout_s * 1000), _MIN_POLL_MS), max_records=500)
        except UnsupportedCodecError:  # it would be tried again forever
            raise
        except KafkaError:  # while the service is away, of which there is no other sign
            time.sleep(timeout_s)
            return []
        return [
            [
                record.topic,
                record.partition,
                record.offset,
                None if record.key is None else record.key.decode(),
                None if record.value is None else record.value.decode(),
            ]
            for records in found.values()
            for record in records
        ]

    def assignment(self) -> list[list[Any]]:
        return [[one.topic, one.partition] for one in self.consumer.assignment()]

    def commit(self) -> None:
        self.consumer.commit()

    def committed(self, places: list[list[Any]]) -> list[int]:
        found = [self.consumer.committed(TopicPartition(t, p)) for t, p in places]
        return [-1001 if one is None else _offset(one) for one in found]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(topic, partition), offset)

    def pause(self, places: list[list[Any]]) -> None:
        self.consumer.pause(*(TopicPartition(t, p) for t, p in places))

    def resume(self, places: list[list[Any]]) -> None:
        self.consumer.resume(*(TopicPartition(t, p) for t, p in places))

    def times(self, places: list[list[Any]]) -> list[int]:
        found = self.consumer.offsets_for_times({TopicPartition(t, p): ms for t, p, ms in places})
        return [-1 if one is None else one.offset for one in found.values()]

    def ends(self, places: list[list[Any]]) -> list[list[int]]:
        asked = [TopicPartition(t, p) for t, p in places]
        first, last = self.consumer.beginning_offsets(asked), self.consumer.end_offsets(asked)
        return [[first[one], last[one]] for one in asked]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _offset(committed: "OffsetAndMetadata | int") -> int:
    return committed if isinstance(committed, int) else committed.offset
