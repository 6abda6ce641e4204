"""The real consumer library of the Python SDK consumes a logstore of the service."""

import threading

import pytest
from aliyun.log import LogClient
from aliyun.log.logexception import LogException

from tests.compat.sdk import GROUP, LOGSTORE, PROJECT, Sink, consuming, put, real_lines
from tests.loghub_service.rawclient import RawClient
from tests.support import ServiceProcess, wait_until

pytestmark = pytest.mark.long

KEYS = [digit + "0" * 31 for digit in "048c"]  # one for each of four shards


def _put_everywhere(client: LogClient, lines: list[str]) -> None:
    """The SDK's client tries again for some seconds while the service is away, which may not be enough."""
    for shard, key in enumerate(KEYS):
        part = lines[shard::4]
        for start in range(0, len(part), 10):
            some = part[start : start + 10]
            wait_until(lambda some=some, key=key: _is_taken(client, some, key), "the service to be back")


def _is_taken(client: LogClient, lines: list[str], hash_key: str) -> bool:
    try:
        put(client, lines, hash_key=hash_key)
    except LogException:
        return False
    return True


def _owned(service: ServiceProcess) -> dict[str, int]:
    """How many shards each live consumer has."""
    with RawClient(service) as raw:
        status = raw.status(group=GROUP)
    return {consumer["name"]: len(consumer["owned"]) for consumer in status["consumers"]}


def _lag(service: ServiceProcess) -> int | None:
    """None before each shard that has logs also has a checkpoint."""
    with RawClient(service) as raw:
        lags = [shard["lag_logs"] for shard in raw.status(group=GROUP)["shards"]]
    return None if None in lags else sum(lags)


def _settled(service: ServiceProcess, sink: Sink, lines: list[str]) -> None:
    """All lines are taken, and the saved checkpoints say so."""
    wait_until(lambda: set(sink.lines()) >= set(lines), "every line to be consumed")
    wait_until(lambda: _lag(service) == 0, "the checkpoints to reach the end")


def test_two_consumers_share_four_shards_and_one_takes_over(
    logstore: LogClient, service: ServiceProcess
) -> None:
    """Balance 2 and 2; when one stops, the other gets all after the timeout; nothing is lost.

    Verified against SLS: no.
    """
    lines = real_lines(400)
    sink = Sink()
    with consuming(service, "c-0", sink):
        wait_until(lambda: _owned(service) == {"c-0": 4}, "the first consumer to have all shards")
        with consuming(service, "c-1", sink):
            wait_until(lambda: _owned(service) == {"c-0": 2, "c-1": 2}, "two shards each")
            _put_everywhere(logstore, lines[:200])
            _settled(service, sink, lines[:200])
            assert {consumer for consumer, _, _ in sink.read_lines} == {"c-0", "c-1"}
            # While both live undisturbed nothing is consumed twice.
            assert sorted(sink.lines()) == sorted(lines[:200])
        wait_until(lambda: _owned(service) == {"c-0": 4}, "the one that stays to have all shards")
        _put_everywhere(logstore, lines[200:])
        _settled(service, sink, lines)
    assert set(sink.lines()) == set(lines)


def test_a_restarted_consumer_goes_on_from_its_checkpoints(
    logstore: LogClient, service: ServiceProcess
) -> None:
    """Same name again: nothing that was checkpointed comes twice. Verified against SLS: no."""
    lines = real_lines(200)
    for part in (lines[:100], lines[100:]):
        _put_everywhere(logstore, part)
        sink = Sink()
        with consuming(service, "c-0", sink):
            _settled(service, sink, part)
        assert sorted(sink.lines()) == sorted(part)


def test_consumers_continue_after_a_restart_of_the_service(
    logstore: LogClient, service: ServiceProcess
) -> None:
    """Killed and started again in the middle: same holders, nothing lost. Verified against SLS: no."""
    lines = real_lines(300)
    sink = Sink()
    with consuming(service, "c-0", sink), consuming(service, "c-1", sink):
        wait_until(lambda: _owned(service) == {"c-0": 2, "c-1": 2}, "two shards each")
        writer = threading.Thread(target=_put_everywhere, args=(logstore, lines))
        writer.start()
        wait_until(lambda: len(sink.lines()) >= 30, "some lines to be consumed")
        service.kill9()
        service.start()
        writer.join(120)
        _settled(service, sink, lines)
        wait_until(lambda: _owned(service) == {"c-0": 2, "c-1": 2}, "two shards each again")
    with RawClient(service) as raw:
        names = [group["name"] for group in raw.ok("GET", "/logstores/access/consumergroups").json()]
    assert names == [GROUP]


def test_an_ordered_group_reads_children_after_their_parent(
    logstore: LogClient, service: ServiceProcess
) -> None:
    """The children of a split stay in ``wait`` until the parent is over. Verified against SLS: no."""
    lines = real_lines(80)
    logstore.create_consumer_group(PROJECT, LOGSTORE, GROUP, 6, True)
    put(logstore, lines[:40], hash_key=KEYS[0])
    logstore.split_shard(PROJECT, LOGSTORE, 0, "2" + "0" * 31)
    put(logstore, lines[40:], hash_key=KEYS[0])
    with RawClient(service) as raw:
        states = {s["shard"]: s["state"] for s in raw.status(group=GROUP)["shards"]}
        assert [states[shard] for shard in (4, 5)] == ["wait", "wait"]
        held = raw.heartbeat("c", [], group=GROUP)
        assert held == [0, 1, 2, 3]
        end = raw.cursor("end", shard=0)
        body = f'{{"shard":0,"checkpoint":"{end}"}}'.encode()
        query = {"type": "checkpoint", "consumer": "c", "forceSuccess": "false"}
        raw.ok("POST", f"/logstores/{LOGSTORE}/consumergroups/{GROUP}", query, body=body)
        assert raw.heartbeat("c", [1, 2, 3], group=GROUP) == [1, 2, 3, 4, 5]
        states = {s["shard"]: s["state"] for s in raw.status(group=GROUP)["shards"]}
        assert states[0] == "over"
