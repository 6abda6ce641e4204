"""An idle consumer over the real service: with polls it pulls only what is there, without as on SLS."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loghub.client.http import HttpLogHub
from loghub_consumer import Consumer
from tests.loghub_consumer.support import PROJECT, Seen, Site, running, wait_for
from tests.loghub_operator.latency import distant
from tests.support import ServiceProcess, running_service

SHARDS = 4


class Pulls:
    """Counts the pulls of a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self.count = 0
        self.consumer = consumer
        self._pull = consumer._client.pull_packed
        consumer._client.pull_packed = self._counted  # type: ignore[method-assign,assignment]

    def _counted(self, *arguments: object, **options: object) -> object:
        self.count += 1
        return self._pull(*arguments, **options)  # type: ignore[arg-type]

    def parked(self) -> int:
        return sum(state.is_parked for state in self.consumer._table.states().values())


@contextmanager
def at_rest(site: Site, seen: Seen, **settings: object) -> Iterator[Pulls]:
    """A consumer of all shards that has read what there was."""
    consumer = Consumer(site.settings(**settings), seen.factory)
    pulls = Pulls(consumer)
    with running(consumer):
        wait_for(lambda: pulls.parked() == SHARDS, "all shards to be parked")
        yield pulls


@pytest.mark.long
def test_a_shard_at_rest_costs_one_pull_for_what_arrives(site: Site) -> None:
    site.prepare(shards=SHARDS)
    seen = Seen()
    with at_rest(site, seen) as pulls:
        for number in range(5):
            before = pulls.count
            ids = site.put(shard=number % SHARDS)
            wait_for(lambda ids=ids: set(ids) <= set(seen.ids()), "the log group")
            wait_for(lambda: pulls.parked() == SHARDS, "all shards to be parked again")
            assert pulls.count == before + 1


@pytest.mark.long
def test_without_polls_every_shard_is_pulled_at_the_interval(site: Site) -> None:
    site.prepare(shards=SHARDS)
    seen = Seen()
    with distant(site.service.endpoint, 0.0) as plain:
        consumer = Consumer(site.settings(endpoint=plain), seen.factory)
        pulls = Pulls(consumer)
        with running(consumer):
            wait_for(lambda: pulls.count > 3 * SHARDS, "pulls of idle shards")
            ids = site.put(shard=1)
            wait_for(lambda: seen.ids() == ids, "the log group")
            assert pulls.parked() == 0


@pytest.mark.long
def test_a_parked_shard_can_be_sought_and_given_up(site: Site) -> None:
    site.prepare(shards=SHARDS)
    ids = site.put(shard=2)
    seen = Seen()
    with at_rest(site, seen) as pulls:
        assert seen.ids() == ids
        pulls.consumer.seek(2, site.begin(2))
        wait_for(lambda: seen.ids() == ids + ids, "the logs to come again")
        wait_for(lambda: pulls.parked() == SHARDS, "all shards to be parked again")
    assert site.saved()[2] == site.ends()[2]


@pytest.mark.long
def test_a_shard_that_is_paused_while_it_is_parked_is_pulled_once_it_is_resumed(site: Site) -> None:
    site.prepare(shards=SHARDS)
    seen = Seen()
    with at_rest(site, seen) as pulls:
        pulls.consumer.pause([0])
        ids = site.put(shard=0)
        wait_for(lambda: not pulls.consumer._table.entry(0).state.is_parked, "the arrival")
        assert seen.ids() == []
        pulls.consumer.resume([0])
        wait_for(lambda: seen.ids() == ids, "the log group")


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("own")) as process:
        yield process


@pytest.mark.long
@pytest.mark.parametrize("how", ["restart", "kill", "pause"])
def test_a_service_that_goes_away_and_comes_back_is_polled_again(
    own_service: ServiceProcess, how: str
) -> None:
    client = HttpLogHub(own_service.endpoint, PROJECT, credentials=own_service.credentials)
    if not client.project_exists():
        client.create_project()
    site = Site(own_service, client)
    site.prepare(shards=SHARDS)
    seen = Seen()
    with at_rest(site, seen) as pulls:
        if how == "restart":
            own_service.restart()
        elif how == "kill":
            own_service.kill9()
            own_service.start()
        else:
            os.kill(own_service.pid, signal.SIGSTOP)
            os.kill(own_service.pid, signal.SIGCONT)
        ids = site.put(shard=3)
        wait_for(lambda: seen.ids() == ids, "the log group")
        wait_for(lambda: pulls.parked() == SHARDS, "all shards to be parked again")
        before = pulls.count
        ids += site.put(shard=3)
        wait_for(lambda: seen.ids() == ids, "the log group that was written later")
        assert pulls.count <= before + 2
