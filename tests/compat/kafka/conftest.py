"""The two places of the scenarios: the service, and a real Kafka broker to compare it with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import kafka
from tests.cluster import require
from tests.compat.kafka.client_programs import KafkaPlace, a_kafka_place
from tests.compat.kafka.real_place import a_real_place


@pytest.fixture(params=["service", pytest.param("real", marks=pytest.mark.deep)])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaPlace]:
    if request.param == "service":
        with a_kafka_place(tmp_path / "place") as made:
            yield made
        return
    if reason := kafka.missing():
        require.absent(reason)
    with a_real_place(tmp_path / "place") as made:
        yield made
