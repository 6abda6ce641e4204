"""A plugin of pytest for kafka-python's own tests: the login, and topics, which only a request creates."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest
from kafka import KafkaAdminClient

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": os.environ["KAFKA_USER"],
    "sasl_plain_password": os.environ["KAFKA_PASSWORD"],
}
# The published archive lacks this module, which starts brokers and stands for those that run.
_service = sys.modules["test.service"] = ModuleType("test.service")
vars(_service).update(ExternalService=lambda *_: None, SpawnedService=None)


def created(topic: str) -> str:
    servers = os.environ["KAFKA_URI"].removeprefix("kafka://")
    with KafkaAdminClient(bootstrap_servers=servers, **LOGIN) as admin:
        admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
    return topic


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]

    without = KafkaFixture._enrich_client_params

    def with_login(self: Any, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        parameters: dict[str, Any] = without(self, params, **{**LOGIN, **defaults})
        return parameters

    KafkaFixture._enrich_client_params = with_login
