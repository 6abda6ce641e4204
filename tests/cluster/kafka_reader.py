"""Reads a logstore as a Kafka client does: confluent-kafka, in a consumer group, with a login by SASL."""

import json
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer

from loghub.client.port import Credentials
from tests.cluster.kubectl import eventually
from tests.cluster.lines import Line

_RECORDS = 1000
_POLL_S = 1.0


def read_until(
    address: str,
    logstore: str,
    is_complete: Callable[[Counter[Line]], bool],
    *,
    project: str,
    credentials: Credentials,
    group: str,
) -> Counter[Line]:
    """Every line of the logstore from the beginning on, until they are complete; they are committed. A log is
    a record with a JSON object."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": project,
            "sasl.password": f"{credentials.access_key_id}#{credentials.access_key_secret}",
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found: Counter[Line] = Counter()

    def read() -> bool:
        for record in consumer.consume(_RECORDS, timeout=_POLL_S):
            assert record.error() is None, record.error()
            fields = json.loads(record.value() or b"")
            found[fields["file"], int(fields["pass"]), int(fields["number"]), fields["line"]] += 1
        return is_complete(found)

    try:
        consumer.subscribe([logstore])
        eventually(read, what=f"all records of {logstore}", pause_s=0)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found
