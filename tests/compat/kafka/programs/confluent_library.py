"""confluent-kafka behind the commands of `client`."""

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition


class ConfluentLibrary:
    def __init__(self, settings: dict[str, Any]) -> None:
        secure = "SASL_SSL" if settings["ca"] else "SASL_PLAINTEXT"
        self._base = {
            "bootstrap.servers": settings["servers"],
            "security.protocol": secure,
            "sasl.mechanisms": "PLAIN",
            "sasl.username": settings["user"],
            "sasl.password": settings["password"],
            "topic.metadata.refresh.interval.ms": 1000,
            "metadata.max.age.ms": 3000,
        }
        if settings["ca"]:
            self._base["ssl.ca.location"] = settings["ca"]
        self._settings = settings
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def produce(self, topic: str, records: list[list[Any]]) -> int:
        if self._producer is None:
            self._producer = Producer(
                {
                    **self._base,
                    "enable.idempotence": True,
                    "linger.ms": self._settings["lingerMs"],
                    "compression.type": self._settings["codec"] or "none",
                }
            )
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for partition, key, value in records:
            self._producer.produce(
                topic, key=key.encode(), value=value.encode(), partition=partition, on_delivery=delivered
            )
            self._producer.poll(0)
        left = self._producer.flush(120)
        return len(failed) + left

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            settings = self._settings
            config = {
                **self._base,
                "group.id": settings["group"] or "none",
                "auto.offset.reset": settings["reset"] or "earliest",
                "enable.auto.commit": settings["autoCommit"],
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": settings["sessionS"] * 1000,
                "heartbeat.interval.ms": 500,
            }
            if settings["instance"]:
                config["group.instance.id"] = settings["instance"]
            if settings["assignor"]:
                config["partition.assignment.strategy"] = settings["assignor"]
            self._consumer = Consumer(config)
        return self._consumer

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(topics)

    def assign(self, places: list[list[Any]]) -> None:
        self.consumer.assign(
            [TopicPartition(t, p, OFFSET_BEGINNING if offset == -2 else offset) for t, p, offset in places]
        )

    def poll(self, timeout_s: float) -> list[list[Any]]:
        found = []
        for message in self.consumer.consume(500, timeout_s):
            if message.error():
                continue
            key, value = message.key(), message.value()
            found.append(
                [
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    None if key is None else key.decode(),
                    None if value is None else value.decode(),
                ]
            )
        return found

    def assignment(self) -> list[list[Any]]:
        return [[one.topic, one.partition] for one in self.consumer.assignment()]

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":  # nothing new
                raise

    def committed(self, places: list[list[Any]]) -> list[int]:
        return [one.offset for one in self.consumer.committed([TopicPartition(t, p) for t, p in places], 30)]

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self.consumer.seek(TopicPartition(topic, partition, offset))

    def pause(self, places: list[list[Any]]) -> None:
        self.consumer.pause([TopicPartition(t, p) for t, p in places])

    def resume(self, places: list[list[Any]]) -> None:
        self.consumer.resume([TopicPartition(t, p) for t, p in places])

    def times(self, places: list[list[Any]]) -> list[int]:
        asked = [TopicPartition(t, p, ms) for t, p, ms in places]
        return [one.offset for one in self.consumer.offsets_for_times(asked, 30)]

    def ends(self, places: list[list[Any]]) -> list[list[int]]:
        return [list(self.consumer.get_watermark_offsets(TopicPartition(t, p), 30)) for t, p in places]

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
