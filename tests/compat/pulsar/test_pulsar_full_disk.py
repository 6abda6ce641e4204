"""Unmodified Pulsar clients while the disk of the service is full."""

from pathlib import Path

import pytest

from tests.compat.pulsar import filling_disk
from tests.compat.pulsar.client_programs import LANGUAGES
from tests.compat.pulsar.clients import Sent, long_value, values
from tests.compat.pulsar.places import a_service_place
from tests.compat.representatives import representative
from tests.support import wait_until

pytestmark = pytest.mark.long
LARGE_BYTES = 3 << 20  # more than a new shard has allocated, where the small messages behind it would fit


@representative("language", LANGUAGES, "python")
@pytest.mark.parametrize("name", ["writer", pytest.param(None, marks=pytest.mark.deep)])
@pytest.mark.parametrize("killed", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_what_a_full_disk_has_refused_is_stored_in_order_once_there_is_room(
    tmp_path: Path, language: str, name: str | None, killed: bool
) -> None:
    """Without a restart, and after one, which knows no more of a producer than its highest sequence id."""
    full = tmp_path / "full"
    variables = {filling_disk.IS_FULL: str(full)}
    with a_service_place(tmp_path / "place", module=filling_disk.__name__, environment=variables) as place:
        topic, client = place.partition(), place.client(language)
        producer = client.producer(topic, name=name, sendTimeoutMs=180_000)
        producer.send("before")
        full.touch()
        small = [f"small {number}" for number in range(50)]
        large = {"value": "large ", "size": LARGE_BYTES}
        sending = producer.begin(large, *({"value": value} for value in small))
        log = place.service.log
        wait_until(lambda: "message refused" in log.read_text(), "the refusal in the log")
        consumer = place.client("python").consumer(topic)
        assert values(consumer.receive()) == ["before"]
        if killed:
            place.service.kill9()
            place.service.start()
        full.unlink()
        assert all(isinstance(one, Sent) for one in producer.sent(sending))
        producer.send("the last")
        received = [value for value in values(consumer.receive_until("the last")) if value != "before"]
        assert received == [long_value("large ", LARGE_BYTES), *small]
        lines = log.read_text().count("message refused")
        assert lines == 1 or (killed and lines == 2)
