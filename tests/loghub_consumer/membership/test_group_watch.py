"""The watch of a group: a change leads to an early heartbeat, and its failures to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub_consumer import Consumer
from loghub_consumer.membership.heartbeat import ABSENT_S, MAX_RETRY_S, GroupWatch
from loghub_consumer.membership.membership import MemberState
from tests.loghub_consumer.membership.one_shard_worker import IDENTITY, OneShardWorker
from tests.loghub_consumer.support import GROUP, PROJECT, Seen, Site, running, wait_for
from tests.support import ServiceProcess, running_service


@pytest.fixture
def worker(tmp_path: Path) -> OneShardWorker:
    one = OneShardWorker(tmp_path, shards=2)
    one.server.polls = True
    for _ in range(3):  # its heartbeats no longer come more often
        one.step()
    return one


def watch_of(worker: OneShardWorker) -> GroupWatch:
    return GroupWatch(worker.shared_state, worker.client, IDENTITY, wait_s=0.0)


def due_in_s(worker: OneShardWorker) -> float:
    with worker.shared_state.use() as (membership, now):
        return membership.wake_in_s(now)


def test_a_shard_that_others_get_is_given_up_by_an_early_heartbeat(worker: OneShardWorker) -> None:
    watch = watch_of(worker)
    watch.step()
    assert due_in_s(worker) == 5
    worker.client.heartbeat("ls", "g", consumer="other", held=())
    watch.step()
    assert due_in_s(worker) < 1


def test_a_change_of_others_sends_no_heartbeat(worker: OneShardWorker) -> None:
    watch = watch_of(worker)
    watch.step()
    worker.client.update_group("ls", GroupInfo(name="g", timeout_s=60, order=True))
    watch.step()
    assert due_in_s(worker) == 5


def test_a_failing_watch_waits_longer_each_time_and_delays_no_heartbeat(worker: OneShardWorker) -> None:
    watch = watch_of(worker)
    worker.client.delete_group("ls", "g")
    pauses = [watch.step() for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_RETRY_S
    assert due_in_s(worker) == 5


@pytest.mark.parametrize("stopped", [False, True])
def test_a_failure_is_reported_unless_the_watch_was_stopped_before(
    worker: OneShardWorker, stopped: bool
) -> None:
    """A service that ends after its consumers answers their last requests with an error."""
    watch = watch_of(worker)
    worker.client.delete_group("ls", "g")
    if stopped:
        watch.stop()
    with capture_logs() as messages:
        watch.step()
    assert [message["event"] for message in messages] == (
        [] if stopped else ["group not watched, heartbeats go on"]
    )


def test_a_service_without_the_call_is_asked_for_none(worker: OneShardWorker) -> None:
    worker.server.polls = False
    assert watch_of(worker).step() == ABSENT_S


def test_nothing_is_watched_before_the_first_heartbeat(tmp_path: Path) -> None:
    one = OneShardWorker(tmp_path)
    one.server.unreachable = True  # a request would fail
    one.clock.now += 1000
    with one.shared_state.use() as (membership, now):
        membership.poll(now)
        assert membership.state is MemberState.FENCED
    assert watch_of(one).step() == ABSENT_S


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as process:
        yield process


@contextmanager
def site_of(service: ServiceProcess) -> Iterator[Site]:
    client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
    client.create_project()
    yield Site(service, client)
    client.close()


@pytest.mark.long
def test_a_shard_moves_to_another_consumer_long_before_the_next_heartbeat(service: ServiceProcess) -> None:
    """Both have an interval that the test never waits for."""
    with site_of(service) as site:
        site.prepare(shards=2, timeout_s=3600)
        first = Consumer(site.settings("c-0", heartbeat_interval_s=1000.0), Seen().factory)
        second = Consumer(site.settings("c-1", heartbeat_interval_s=1000.0), Seen().factory)
        with running(first), running(second):
            wait_for(lambda: len(first.assignment()) == len(second.assignment()) == 1, "a shard for each")
        assert site.client.list_groups(site.logstore)[0].name == GROUP
