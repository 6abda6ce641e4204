"""A running consumer whose topic is deleted and made again reads all of the new one (docs/kafka.md 2).

The broker runs in this process. Libraries that keep their positions of the old topic are tried; kafka-python
and aiokafka notice that the topic was away, and join their group again.
"""

import asyncio
from pathlib import Path

import pytest

from loghub_service.api.logstores import NewLogstore, create, delete
from tests.compat.kafka.client_programs import TOPIC
from tests.compat.kafka.test_kafka_vanished_shards import BrokerPlace, group_of
from tests.compat.representatives import representative
from tests.loghub_service.kafka.broker.broker_place import PROJECT, Place, run

pytestmark = pytest.mark.long
KEEPING = ("confluent", "franz-go")


@representative("library", KEEPING, "confluent")
def test_a_running_consumer_reads_all_of_a_topic_that_was_made_again(tmp_path: Path, library: str) -> None:
    async def scenario(broker: Place) -> None:
        place = BrokerPlace(broker, asyncio.get_running_loop(), tmp_path / "place")
        try:
            await asyncio.to_thread(story, place, library)
        except BaseException:
            print(place.explain())
            raise
        finally:
            place.end()
        assert ("FETCH", "OFFSET_OUT_OF_RANGE") in broker.endpoint.broker.counts.errors

    run(scenario, tmp_path / "d")


def story(place: BrokerPlace, library: str) -> None:
    engine = place.broker.engine
    before = place.producer("confluent")
    before.produce([f"old {number}" for number in range(5)], partition=0)
    reader = place.start(library, group=group_of(library), assignor="roundrobin")
    reader.answer("open")
    reader.ask("subscribe", topics=[TOPIC])
    place.wait_for(set(before.sent), reader)
    reader.ask("pause", places=[[TOPIC, 0]])  # or it might find the new topic while that is empty
    place.carry_out(delete(engine, PROJECT, TOPIC))
    new = NewLogstore(name=TOPIC, shards=1, ttl_days=2, options='{"kafkaForm":"raw"}')
    place.carry_out(create(engine, PROJECT, new))
    after = place.producer("confluent")
    after.produce([f"new {number}" for number in range(10)], partition=0)
    reader.ask("resume", places=[[TOPIC, 0]])
    place.wait_for(set(after.sent), reader)
    assert reader.values[len(before.sent) :] == after.sent
