"""aiokafka behind the commands of `client`, on an event loop of its own."""

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from python_settings import connection

_GUARD_S = 150
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class AiokafkaLibrary:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._base = connection(settings)
        if settings["ca"]:
            self._base["ssl_context"] = ssl.create_default_context(cafile=settings["ca"])
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_GUARD_S)

    def produce(self, topic: str, records: list[list[Any]]) -> int:
        return self._run(self._produce(topic, records))

    async def _produce(self, topic: str, records: list[list[Any]]) -> int:
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                **self._base,
                enable_idempotence=True,
                linger_ms=self._settings["lingerMs"],
                compression_type=self._settings["codec"] or None,
            )
            await self._producer.start()
        sent = [
            await self._producer.send(
                topic,
                key=key.encode(),
                value=value.encode(),
                partition=None if partition < 0 else partition,
            )
            for partition, key, value in records
        ]
        await self._producer.flush()
        done = await asyncio.gather(*sent, return_exceptions=True)
        return sum(isinstance(one, BaseException) for one in done)

    @property
    def consumer(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = self._run(self._open())
        return self._consumer

    async def _open(self) -> AIOKafkaConsumer:
        settings = self._settings
        more = {}
        if settings["assignor"]:
            names = settings["assignor"].split(",")
            more["partition_assignment_strategy"] = [_ASSIGNORS[name] for name in names]
        consumer = AIOKafkaConsumer(
            **self._base,
            **more,
            group_id=settings["group"] or None,
            group_instance_id=settings["instance"] or None,
            auto_offset_reset=settings["reset"] or "earliest",
            enable_auto_commit=settings["autoCommit"],
            auto_commit_interval_ms=200,
            session_timeout_ms=settings["sessionS"] * 1000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        return consumer

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(topics)

    def assign(self, places: list[list[Any]]) -> None:
        self._run(self._assign(places))

    async def _assign(self, places: list[list[Any]]) -> None:
        consumer = await self._open() if self._consumer is None else self._consumer
        self._consumer = consumer
        consumer.assign([TopicPartition(t, p) for t, p, _ in places])
        for topic, partition, offset in places:
            place = TopicPartition(topic, partition)
            if offset == -2:
                await consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)

    def poll(self, timeout_s: float) -> list[list[Any]]:
        try:
            found = self._run(self.consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=500))
        except KafkaError:  # while the service is away
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
        self._run(self.consumer.commit())

    def committed(self, places: list[list[Any]]) -> list[int]:
        found = [self._run(self.consumer.committed(TopicPartition(t, p))) for t, p in places]
        return [-1001 if one is None else one for one in found]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(topic, partition), offset)

    def pause(self, places: list[list[Any]]) -> None:
        self._run(self._pause([TopicPartition(t, p) for t, p in places]))

    async def _pause(self, places: list[TopicPartition]) -> None:
        self.consumer.pause(*places)

    def resume(self, places: list[list[Any]]) -> None:
        self._run(self._resume([TopicPartition(t, p) for t, p in places]))

    async def _resume(self, places: list[TopicPartition]) -> None:
        self.consumer.resume(*places)

    def times(self, places: list[list[Any]]) -> list[int]:
        asked = {TopicPartition(t, p): ms for t, p, ms in places}
        found = self._run(self.consumer.offsets_for_times(asked))
        return [-1 if one is None else one.offset for one in found.values()]

    def ends(self, places: list[list[Any]]) -> list[list[int]]:
        asked = [TopicPartition(t, p) for t, p in places]
        first = self._run(self.consumer.beginning_offsets(asked))
        last = self._run(self.consumer.end_offsets(asked))
        return [[first[one], last[one]] for one in asked]

    def close(self) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())
        if self._producer is not None:
            self._run(self._producer.stop())
