"""The operator observes the same through the vendor's SDK as through our own client, errors included."""

from collections.abc import Iterator

import pytest

from loghub.client.port import Credentials, GroupInfo, LogHub
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.clients.log_service import connector
from loghub_operator.model.observed import Available, LogServiceObserved, ServiceErrorReason, Unavailable
from loghub_operator.settings import Client, Settings
from tests.loghub.client.scripted import refused_endpoint
from tests.loghub_operator.latency import distant
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.observing import service_observed
from tests.support import HandClock, ServiceProcess, running_service

ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))
LOW = "0" * 32


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running


def connect(choice: Client, endpoint: str, credentials: Credentials, project: str = "demo") -> LogHub:
    settings = Settings(client=choice)
    return connector(settings.uses_sdk, settings.address_of)(endpoint, project, credentials)


def observed(endpoint: str, credentials: Credentials, project: str = "demo") -> list[LogServiceObserved]:
    """By each client, as of the same moment."""
    results = []
    for choice in (Client.HTTP, Client.SDK):
        client = connect(choice, endpoint, credentials, project)
        results.append(
            service_observed(client, resource(), silent=["access-0"], clock=HandClock(2_000_000_000.0))
        )
        client.close()
    return results


@pytest.mark.long
def test_both_clients_observe_the_same_state_of_a_group(service: ServiceProcess) -> None:
    writer = connect(Client.HTTP, service.endpoint, service.credentials)
    writer.create_project()
    writer.create_logstore("access", shards=3)
    writer.create_group("access", GroupInfo(name="access", timeout_s=30, order=False))
    writer.split_shard("access", 2)
    for _ in range(3):
        writer.put_logs("access", ONE, hash_key=LOW)
    begin = writer.get_cursor("access", 0, "begin")
    writer.update_checkpoint("access", "access", shard=0, cursor=begin, consumer="access-0", force=True)
    writer.close()
    with distant(service.endpoint, 1.0) as endpoint:
        over_http, over_sdk = observed(endpoint, service.credentials)
    assert over_http == over_sdk
    assert isinstance(over_sdk, Available)
    assert [one.lag_groups for one in over_sdk.shards] == [3, 0, 0, 0, 0]
    assert [one.read_only for one in over_sdk.shards] == [False, False, True, False, False]


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("key", ServiceErrorReason.AUTHENTICATION_FAILED),
        ("project", ServiceErrorReason.PROJECT_NOT_FOUND),
        ("endpoint", ServiceErrorReason.ENDPOINT_UNREACHABLE),
    ],
)
def test_both_clients_report_an_error_with_the_same_reason_and_message(
    service: ServiceProcess, case: str, reason: ServiceErrorReason
) -> None:
    key = service.credentials
    if case == "key":
        key = Credentials(access_key_id=key.access_key_id, access_key_secret="wrong")
    project = "missing" if case == "project" else "demo"
    with distant(service.endpoint, 1.0) as far:
        endpoint = refused_endpoint() if case == "endpoint" else far
        over_http, over_sdk = observed(endpoint, key, project)
    assert isinstance(over_sdk, Unavailable)
    assert over_sdk.reason is reason
    assert over_http == over_sdk
