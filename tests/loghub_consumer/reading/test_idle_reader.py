"""The source of an idle worker on a real service: with polls it requests no end, without as on SLS."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.http import HttpLogHub
from loghub.client.port import Position
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import log_service
from loghub_consumer.batch_plan import BatchPlan
from loghub_consumer.exchange_files import ExchangeFiles, Positions
from loghub_worker.source import GroupStreamReader
from tests.loghub_consumer.reading.options import source_options
from tests.loghub_operator.latency import distant
from tests.loghub_worker.support import LOGSTORE, prepare
from tests.support import ServiceProcess, running_service, wait_until

SHARDS, INTERVAL_S = 4, 0.2
GROUP = encode(LogGroup(logs=(Log(time=1, contents=(("a", "b"),)),)))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, HttpLogHub]]:
    with running_service(tmp_path_factory.mktemp("service")) as service:
        client = prepare(service, shards=SHARDS)
        yield service, client
        client.close()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards whose ends the reader asks for one by one."""
    shards: list[int] = []
    get_cursor = HttpLogHub.get_cursor

    def noted(client: HttpLogHub, logstore: str, shard: int, position: Position) -> str:
        if threading.current_thread() is not threading.main_thread():  # the test itself asks too
            shards.append(shard)
        return get_cursor(client, logstore, shard, position)

    monkeypatch.setattr(HttpLogHub, "get_cursor", noted)
    return shards


@pytest.mark.long
@pytest.mark.parametrize("has_polls", [True, False])
def test_a_log_group_on_an_idle_shard_is_planned(
    has_polls: bool, prepared: tuple[ServiceProcess, HttpLogHub], tmp_path: Path, requested: list[int]
) -> None:
    service, client = prepared
    with nullcontext(service.endpoint) if has_polls else distant(service.endpoint, 0.0) as endpoint:
        reader = GroupStreamReader(
            source_options(endpoint, service.credentials_dir, tmp_path, fetch_interval_s=INTERVAL_S)
        )
        infos = client.list_shards(LOGSTORE)
        ends = {one.shard: decode(client.get_cursor(LOGSTORE, one.shard, "end")) for one in infos}
        exchange = ExchangeFiles(tmp_path)
        exchange.write_positions(Positions(version=1, shards=ends))
        begin = reader.initialOffset()
        assert reader.latestOffset(begin, ReadAllAvailable()) == begin, "nothing is there for a second"
        assert exchange.report().ends == ends
        if not has_polls:
            assert len(requested) >= 2 * SHARDS, "several intervals are over"
        poll = reader._watch()._poll
        if has_polls:
            wait_until(lambda: poll.watched == ends.keys(), "all shards to be watched")
        planned: list[BatchPlan] = []

        def plan() -> None:
            after = begin
            while after == begin:
                after = reader.latestOffset(begin, ReadAllAvailable())
            planned.append(BatchPlan.from_json(after))

        thread = threading.Thread(target=plan, daemon=True)
        thread.start()
        client.put_logs(LOGSTORE, GROUP, hash_key=infos[2].begin_key)
        thread.join(60)
        ((shard, begin_at, end_at),) = ((r.shard, r.begin, r.end) for r in planned[0].ranges)
        assert (shard, begin_at, end_at) == (2, ends[2], ends[2] + 1)
        assert bool(requested) is not has_polls
        poll.stop()
        log_service.shared_client.cache_clear()
