"""Helpers of the tests of the port's contract: names, log groups, and reading them."""

import pytest

from loghub.client.port import GroupInfo, LogHub, Pulled
from loghub.wire import loggroup
from loghub.wire.errors import LogHubError
from loghub.wire.loggroup import Log, LogGroup

STORE = "access"
GROUP = GroupInfo(name="readers", timeout_s=30, order=False)
LOW, HIGH = "0" * 32, "f" * 31 + "e"  # keys in the first and in the last shard


def group_of(*lines: str, time: int = 1_700_000_000) -> bytes:
    """A serialised group with a log for each line."""
    logs = tuple(Log(time=time, contents=(("line", line),)) for line in lines)
    return loggroup.encode(LogGroup(logs=logs, topic="t", source="s", tags=(("host", "h"),)))


def lines_of(pulled: Pulled) -> list[str]:
    groups = [loggroup.decode(group) for group in loggroup.split(pulled.body)]
    assert len(groups) == pulled.count
    values = [value for group in groups for log in group.logs for _, value in log.contents]
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def pull_from_begin(client: LogHub, shard: int, count: int = 1000) -> Pulled:
    return client.pull_logs(STORE, shard, cursor=client.get_cursor(STORE, shard, "begin"), count=count)


def assert_refused(code: str, error: pytest.ExceptionInfo[LogHubError]) -> None:
    assert error.value.code == code
    assert error.value.message
