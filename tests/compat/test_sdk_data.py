"""The real Python SDK writes and reads logs of the service."""

import time

import pytest
from aliyun.log import LogClient, LogException, LogItem, PutLogsRequest

from tests.compat.sdk import LOGSTORE, PROJECT, client_of, put, real_lines
from tests.support import ServiceProcess


def _read(client: LogClient, shard: int, cursor: str, count: int = 1000) -> list[str]:
    reply = client.pull_logs(PROJECT, LOGSTORE, shard, cursor, count)
    return [c.Value for g in reply.get_loggroup_list().LogGroups for log in g.Logs for c in log.Contents]


@pytest.mark.long
def test_put_and_pull_by_key(logstore: LogClient) -> None:
    """A key decides the shard, and what was put comes back in order. Verified against SLS: no."""
    lines = real_lines(200)
    for start in range(0, 200, 20):
        put(logstore, lines[start : start + 20], hash_key="8" + "0" * 31)
    begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, 2).get_cursor()
    assert _read(logstore, 2, begin) == lines
    for shard in (0, 1, 3):
        cursor = logstore.get_begin_cursor(PROJECT, LOGSTORE, shard).get_cursor()
        assert cursor == logstore.get_end_cursor(PROJECT, LOGSTORE, shard).get_cursor()
        assert _read(logstore, shard, cursor) == []


@pytest.mark.long
def test_balanced_puts_reach_several_shards(logstore: LogClient) -> None:
    """Without a key every shard gets its part. Verified against SLS: no."""
    for number in range(60):
        put(logstore, [str(number)])
    counts = []
    for shard in range(4):
        begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, shard).get_cursor()
        counts.append(logstore.pull_logs(PROJECT, LOGSTORE, shard, begin).get_loggroup_count())
    assert sum(counts) == 60
    assert min(counts) > 0


@pytest.mark.long
def test_values_need_not_be_text(logstore: LogClient) -> None:
    """Binary values survive (the SDK reads them with its raw twin). Verified against SLS: no."""
    item = LogItem(timestamp=int(time.time()), contents=[("b", b"\xff\xfe\x00")])
    logstore.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "", "", [item], hashKey="0" * 32))
    begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    reply = logstore.pull_logs(PROJECT, LOGSTORE, 0, begin)
    assert reply.get_loggroup_list().LogGroups[0].Logs[0].Contents[0].Value == b"\xff\xfe\x00"


@pytest.mark.long
def test_uncompressed_put(logstore: LogClient) -> None:
    """A body without compression is taken too. Verified against SLS: no."""
    item = LogItem(timestamp=1, contents=[("line", "plain")])
    logstore.put_logs(PutLogsRequest(PROJECT, LOGSTORE, "", "", [item], compress=False, hashKey="0" * 32))
    begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    assert _read(logstore, 0, begin) == ["plain"]


@pytest.mark.long
def test_cursors_and_their_times(logstore: LogClient) -> None:
    """Time to cursor, cursor to time, and the cursor before the end. Verified against SLS: no."""
    before = int(time.time())
    put(logstore, ["one"], hash_key="0" * 32)
    begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    end = logstore.get_end_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    after = int(time.time())
    assert before <= logstore.get_cursor_time(PROJECT, LOGSTORE, 0, begin).get_cursor_time() <= after
    assert before <= logstore.get_previous_cursor_time(PROJECT, LOGSTORE, 0, end).get_cursor_time() <= after
    assert logstore.get_cursor(PROJECT, LOGSTORE, 0, before).get_cursor() == begin
    assert logstore.get_cursor(PROJECT, LOGSTORE, 0, after + 100).get_cursor() == end


@pytest.mark.long
def test_count_and_end_cursor_bound_a_pull(logstore: LogClient) -> None:
    """``count`` groups at most; ``end_cursor`` is exclusive. Verified against SLS: no."""
    for number in range(5):
        put(logstore, [str(number)], hash_key="0" * 32)
    begin = logstore.get_begin_cursor(PROJECT, LOGSTORE, 0).get_cursor()
    first = logstore.pull_logs(PROJECT, LOGSTORE, 0, begin, 2)
    assert first.get_loggroup_count() == 2
    third = first.get_next_cursor()
    assert _read(logstore, 0, third, 1) == ["2"]
    bounded = logstore.pull_logs(PROJECT, LOGSTORE, 0, begin, 1000, end_cursor=third)
    assert (bounded.get_loggroup_count(), bounded.get_next_cursor()) == (2, third)
    at_end = logstore.pull_logs(PROJECT, LOGSTORE, 0, third, 1000, end_cursor=third)
    assert (at_end.get_loggroup_count(), at_end.get_next_cursor()) == (0, third)


@pytest.mark.long
def test_a_wrong_secret_is_refused(logstore: LogClient, service: ServiceProcess) -> None:
    """401 SignatureNotMatch. Verified against SLS: no."""
    stranger = LogClient("http://sls.invalid", service.credentials.access_key_id, "wrong")
    with pytest.raises(LogException) as raised:
        stranger.list_logstore(PROJECT)
    assert raised.value.get_error_code() == "SignatureNotMatch"
    assert raised.value.get_resp_status() == 401
    assert raised.value.get_request_id()
    assert client_of(service).list_logstore(PROJECT).get_logstores() == [LOGSTORE]
