"""What the log service reports becomes an observation, with and without the extensions."""

from dataclasses import replace
from typing import Any

import pytest

from loghub.client.port import GroupInfo, GroupStatus, KafkaGroupStatus, LogHub
from loghub.domain.state_inference import WorkerReport
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.errors import EndpointUnreachable, ExtensionMissing, LogHubError
from loghub.wire.loggroup import Log, LogGroup
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_operator.api import Phase
from loghub_operator.logservice.group_changes import GroupExists, change_group, change_shards, create_group
from loghub_operator.logservice.group_state import ConsumerGroupKey, unavailable
from loghub_operator.model.actions import CreateGroup, DeleteGroup, MergeShards, ReshardRefused, SplitShard
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    LogServiceObserved,
    ServiceErrorReason,
    Unavailable,
)
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.plan.group_of_sixteen import observed as running
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.golden import EPOCH
from tests.loghub_operator.support.observing import service_observed
from tests.loghub_operator.support.rounds import plan
from tests.support import HandClock

KEY = ConsumerGroupKey(logstore="access", group="access")
CREATE = CreateGroup(settings=GroupSettings(timeout_s=30, order=True))
ONE = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


class WithoutExtensions:
    """The same log service without extensions, as the real SLS."""

    def __init__(self, client: LogHub) -> None:
        self._client = client

    def has_extensions(self) -> bool:
        return False

    def group_status(self, *_: object) -> None:
        raise AssertionError("the real SLS has no such call")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000_000.0)


@pytest.fixture
def server(clock: HandClock) -> MemoryServer:
    result = MemoryServer(clock)
    client = result.client("demo")
    client.create_project()
    client.create_logstore("access", shards=2)
    return result


@pytest.fixture
def client(server: MemoryServer) -> LogHub:
    return server.client("demo")


def observe(client: Any, clock: HandClock) -> LogServiceObserved:
    return service_observed(client, resource(), silent=["access-0", "access-1"], clock=clock)


@pytest.mark.parametrize("extensions", [True, False])
def test_without_a_group_every_shard_is_unassigned(
    client: LogHub, clock: HandClock, *, extensions: bool
) -> None:
    observed = observe(client if extensions else WithoutExtensions(client), clock)
    assert observed.group is None
    assert [(shard.shard, shard.state, shard.lag_s) for shard in observed.shards] == [
        (0, "not_alloc", None),
        (1, "not_alloc", None),
    ]


def test_the_embedded_service_reports_holders_and_consumers(client: LogHub, clock: HandClock) -> None:
    create_group(client, KEY, CREATE)
    held = client.heartbeat("access", "access", consumer="access-0", held=())
    client.heartbeat("access", "access", consumer="access-0", held=held)
    observed = observe(client, clock)
    assert observed.group == GroupSettings(timeout_s=30, order=True)
    assert observed.consumers == ("access-0",)
    assert [(shard.state, shard.holder, shard.lag_logs) for shard in observed.shards] == [
        ("already_alloc", "access-0", 0),
        ("already_alloc", "access-0", 0),
    ]


def test_what_the_real_sls_does_not_report_is_unknown(client: LogHub, clock: HandClock) -> None:
    create_group(client, KEY, CREATE)
    for _ in range(2):  # one for each shard
        client.put_logs("access", ONE)
    observed = observe(WithoutExtensions(client), clock)
    assert observed.consumers is None
    assert {shard.lag_s for shard in observed.shards} == {None}
    assert {shard.lag_groups for shard in observed.shards} == {None}
    assert {shard.lag_logs for shard in observed.shards} == {None}


@pytest.mark.parametrize("extensions", [True, False])
def test_an_empty_shard_has_no_lag_whatever_the_start_position(
    client: LogHub, clock: HandClock, *, extensions: bool
) -> None:
    create_group(client, KEY, CREATE)
    observed = observe(client if extensions else WithoutExtensions(client), clock)
    assert {(one.lag_s, one.lag_groups, one.lag_logs) for one in observed.shards} == {(0.0, 0, 0)}


@pytest.mark.parametrize("extensions", [True, False])
@pytest.mark.parametrize("left", [0, 1])
def test_a_group_is_caught_up_wherever_nothing_is_left(
    client: LogHub, clock: HandClock, *, extensions: bool, left: int
) -> None:
    """The real SLS does not count logs; that none is left is known there as well."""
    create_group(client, KEY, CREATE)
    for _ in range(2):
        client.put_logs("access", ONE)
    for shard in (0, 1):
        end = client.get_cursor("access", shard, "end")
        client.update_checkpoint("access", "access", shard=shard, cursor=end, consumer="", force=True)
    for _ in range(left):
        client.put_logs("access", ONE)
    seen = observe(client if extensions else WithoutExtensions(client), clock)
    assert isinstance(seen, Available)
    shards = tuple(replace(one, state="already_alloc", holder="access-0") for one in seen.shards)
    state = replace(running(pods=1, replicas=1), service=replace(seen, shards=shards))
    status = plan(resource({}, {"observedGeneration": 1}), state, EPOCH).status
    assert status.phase is Phase.RUNNING
    assert GroupSnapshot(at_unix_s=EPOCH, status=status, workers=()).caught_up == (not left)


@pytest.mark.parametrize("extensions", [True, False])
def test_lag_is_end_cursor_minus_checkpoint_in_log_groups(
    client: LogHub, clock: HandClock, *, extensions: bool
) -> None:
    create_group(client, KEY, CREATE)
    begin = client.get_cursor("access", 0, "begin")
    client.update_checkpoint("access", "access", shard=0, cursor=begin, consumer="access-1", force=True)
    for _ in range(6):  # three for each shard
        client.put_logs("access", ONE)
    first = observe(client if extensions else WithoutExtensions(client), clock).shards[0]
    assert first.lag_groups == 3
    assert wire_cursor.decode(first.end_cursor) == wire_cursor.decode(first.checkpoint) + 3


@pytest.mark.parametrize("extensions", [True, False])
def test_keys_and_creation_time_are_requested_if_shards_may_be_split(
    client: LogHub, clock: HandClock, *, extensions: bool
) -> None:
    create_group(client, KEY, CREATE)
    allowed = resource({"scaling": {"shards": {"autoSplit": True}}})
    requested: Any = client if extensions else WithoutExtensions(client)
    observed = service_observed(requested, allowed, clock=clock)
    left, right = observed.shards
    assert left.end_key == right.begin_key == f"8{'0' * 31}"
    assert left.created_unix_s == pytest.approx(clock.now, abs=1.0)


def test_a_repeated_split_or_merge_changes_nothing(client: LogHub) -> None:
    assert change_shards(client, "access", SplitShard(0))
    assert not change_shards(client, "access", SplitShard(0))
    assert [one.read_only for one in client.list_shards("access")] == [True, False, False, False]
    assert change_shards(client, "access", MergeShards(2))
    assert not change_shards(client, "access", MergeShards(2))
    assert sum(not one.read_only for one in client.list_shards("access")) == 2


def test_other_groups_are_counted_if_shards_may_be_merged(
    server: MemoryServer, clock: HandClock, client: LogHub
) -> None:
    create_group(client, KEY, CREATE)
    allowed = resource({"scaling": {"shards": {"autoSplit": True}}})
    for expected in range(2):
        for requested in (client, WithoutExtensions(client)):
            observed = service_observed(requested, allowed, clock=clock)
            assert observed.other_groups == expected
        if expected == 0:
            create_group(client, ConsumerGroupKey(logstore="access", group="other"), CREATE)


@pytest.mark.parametrize(("merges", "expected"), [({"autoMerge": True}, 2), ({}, 0)])
def test_groups_of_kafka_clients_count_as_other_groups(
    client: LogHub, clock: HandClock, merges: dict[str, bool], expected: int
) -> None:
    """A merge would take partitions from them."""

    class WithKafka(WithoutExtensions):
        def has_extensions(self) -> bool:
            return True

        def group_status(self, logstore: str, group: str) -> GroupStatus:  # type: ignore[override]
            return client.group_status(logstore, group)

        def list_kafka_groups(self, logstore: str) -> tuple[KafkaGroupStatus, ...]:
            assert logstore == "access"
            empty = KafkaGroupStatus(
                name="readers", state="Empty", generation=1, assignor="", members=(), offsets=()
            )
            return (empty, replace(empty, name="others", state="Stable"))

    class Older(WithKafka):
        def list_kafka_groups(self, logstore: str) -> tuple[KafkaGroupStatus, ...]:
            raise ExtensionMissing("groups of Kafka clients are listed by the embedded service only")

    create_group(client, KEY, CREATE)
    spec = resource({"scaling": {"shards": merges}})
    assert service_observed(WithKafka(client), spec, clock=clock).other_groups == expected
    assert service_observed(Older(client), spec, clock=clock).other_groups == 0


def test_a_rejected_split_is_reported_with_the_services_message(client: LogHub) -> None:
    class Limited(WithoutExtensions):
        error = LogHubError("ShardQuotaExceed", 403, "no more than 2", "request-1")

        def split_shard(self, *_: object) -> None:
            raise self.error

    limited: Any = Limited(client)
    with pytest.raises(ReshardRefused, match=r"^ShardQuotaExceed, HTTP 403: no more than 2$") as caught:
        change_shards(limited, "access", SplitShard(0))
    assert caught.value.action == SplitShard(0)
    limited.error = LogHubError("InternalServerError", 500, "maybe it was done")
    with pytest.raises(LogHubError, match="maybe"):
        change_shards(limited, "access", SplitShard(0))


def test_on_the_real_sls_holder_and_lag_follow_from_the_checkpoint(client: LogHub, clock: HandClock) -> None:
    create_group(client, KEY, CREATE)
    end = client.get_cursor("access", 0, "end")
    client.update_checkpoint("access", "access", shard=0, cursor=end, consumer="access-1", force=True)
    observed = observe(WithoutExtensions(client), clock)
    first = observed.shards[0]
    assert (first.checkpoint, first.lag_s) == (end, 0.0)
    assert wire_cursor.decode(end) >= 0
    assert first.checkpoint_unix_s == pytest.approx(clock.now)


@pytest.mark.parametrize("extensions", [True, False])
def test_missing_logstore_project_and_endpoint_have_different_reasons(
    server: MemoryServer, clock: HandClock, *, extensions: bool
) -> None:
    def reason(client: LogHub) -> ServiceErrorReason | None:
        service = observe(client if extensions else WithoutExtensions(client), clock)
        return service.reason if isinstance(service, Unavailable) else None

    client = server.client("demo")
    client.delete_logstore("access")
    assert reason(client) is ServiceErrorReason.LOGSTORE_NOT_FOUND
    assert reason(server.client("other")) is ServiceErrorReason.PROJECT_NOT_FOUND
    server.unreachable = True
    assert reason(client) is ServiceErrorReason.ENDPOINT_UNREACHABLE


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (LogHubError("SignatureNotMatch", 401, "no"), "AuthenticationFailed", "Secret loghub-credentials"),
        (LogHubError("Unauthorized", 401, "no"), "AuthenticationFailed", "Secret loghub-credentials"),
        (LogHubError("AccessDenied", 403, "no"), "AuthenticationFailed", "Secret loghub-credentials"),
        (LogHubError("SecurityTokenExpired", 401, "no"), "AuthenticationFailed", "Secret loghub-credentials"),
        (LogHubError("ReadQuotaExceed", 403, "no"), "Throttled", "limits the requests in project demo"),
        (LogHubError("ProjectQuotaExceed", 403, "no"), "Throttled", "limits the requests"),
        (LogHubError("ServerBusy", 503, "no"), "Throttled", "limits the requests"),
        (LogHubError("ProjectForbidden", 403, "no"), "RequestRejected", "ProjectForbidden"),
        (LogHubError("ProjectNotExist", 404, "no"), "ProjectNotFound", "project demo does not exist"),
        (
            LogHubError("LogStoreNotExist", 404, "no"),
            "LogstoreNotFound",
            "logstore access does not exist in project demo",
        ),
        (LogHubError("BadResponse", 200, "not one of SLS: '<html>'"), "RequestRejected", "check the URL"),
        (EndpointUnreachable("http://x", "no route", definite=True), "EndpointUnreachable", "no route"),
    ],
)
def test_each_error_becomes_a_message_for_users(error: LogHubError, reason: str, message: str) -> None:
    observed = unavailable(error, resource())
    assert observed.reason == reason
    assert message in observed.message


def test_the_message_is_the_same_in_every_reconcile() -> None:
    """A status that differs each time would be written and start the next reconcile, forever."""
    first, second = (LogHubError("Unauthorized", 401, "no", request_id=one) for one in ("id-1", "id-2"))
    assert unavailable(first, resource()) == unavailable(second, resource())


@pytest.mark.parametrize("extensions", [True, False])
def test_invalid_hash_keys_make_the_service_unavailable_and_are_not_quoted(
    client: LogHub, clock: HandClock, monkeypatch: pytest.MonkeyPatch, *, extensions: bool
) -> None:
    requested: Any = client if extensions else WithoutExtensions(client)
    first, *rest = client.list_shards("access")
    monkeypatch.setattr(client, "list_shards", lambda _: (replace(first, begin_key="inner page"), *rest))
    observed = observe(requested, clock)
    assert isinstance(observed, Unavailable)
    assert observed.reason is ServiceErrorReason.REQUEST_REJECTED
    assert "inner page" not in observed.message


def test_the_response_of_an_unknown_server_is_not_quoted() -> None:
    reported = unavailable(LogHubError("BadResponse", 200, "not one of SLS: 'inner page'"), resource())
    assert "inner page" not in reported.message


def test_creating_an_existing_group_reports_that_it_existed(client: LogHub) -> None:
    client.create_group("access", GroupInfo(name="access", timeout_s=60, order=False))
    with pytest.raises(GroupExists, match="created by another client"):
        create_group(client, KEY, CREATE)


def test_deleting_a_missing_group_is_no_error(client: LogHub) -> None:
    create_group(client, KEY, CREATE)
    change_group(client, KEY, DeleteGroup())
    change_group(client, KEY, DeleteGroup())
    client.delete_logstore("access")
    change_group(client, KEY, DeleteGroup())


def consume_and_lose(server: MemoryServer, client: LogHub) -> None:
    """One consumer saves the end of both shards, and then shard 0 loses its last log group."""
    create_group(client, KEY, CREATE)
    for _ in range(2):
        client.put_logs("access", ONE)
    client.heartbeat("access", "access", consumer="access-0", held=())
    for shard in (0, 1):
        end = client.get_cursor("access", shard, "end")
        client.update_checkpoint(
            "access", "access", shard=shard, cursor=end, consumer="access-0", force=False
        )
    data = server.projects["demo"]["access"].shard_data(0)
    for values in (data.groups, data.logs, data.received_us):
        values.pop()


def test_a_checkpoint_beyond_the_end_is_recognized_and_its_lag_is_unknown(
    server: MemoryServer, client: LogHub, clock: HandClock
) -> None:
    consume_and_lose(server, client)
    observed = observe(client, clock)
    assert [(one.beyond_end, one.lag_s, one.lag_groups, one.lag_logs) for one in observed.shards] == [
        (True, None, None, None),
        (False, 0.0, 0, 0),
    ]


def test_without_extensions_the_worker_reports_a_position_beyond_the_end(
    server: MemoryServer, client: LogHub, clock: HandClock
) -> None:
    """The cursors of the log service alone prove nothing there: they are read one after the other, and the
    worker may have advanced in between."""
    consume_and_lose(server, client)
    sls = WithoutExtensions(client)
    held = frozenset({0, 1})
    for beyond in (frozenset[int](), frozenset({0})):
        reports = {"access-0": WorkerReport(held=held, beyond_end=beyond), "access-1": None}
        observed = service_observed(sls, resource(), reports=reports, clock=clock)
        assert [one.beyond_end for one in observed.shards] == [0 in beyond, False]
        assert [one.lag_s for one in observed.shards] == [None if beyond else 0.0, 0.0]
