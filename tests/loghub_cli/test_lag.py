"""``loghub lag``: the same figures from the embedded service's own call and from cursors and checkpoints."""

import json
import signal

from loghub.client.port import GroupInfo
from loghub.domain.lag import Lag
from loghub_cli.kafka_groups import total
from tests.loghub.client.contract import LOW, group_of
from tests.loghub_cli.command import STORE, Cli
from tests.support import wait_until

GROUP = GroupInfo(name="readers", timeout_s=60, order=False)


def prepared(cli: Cli) -> None:
    cli.client.create_group(STORE, GROUP)
    for number in range(3):
        cli.client.put_logs(STORE, group_of(f"{number} a", f"{number} b"), hash_key=LOW)
    for shard in (0, 1):
        cursor = cli.client.get_cursor(STORE, shard, "begin")
        cli.client.update_checkpoint(STORE, "readers", shard=shard, cursor=cursor, consumer="", force=True)


def test_lag_is_known_for_each_shard_and_in_total(either: Cli) -> None:
    prepared(either)
    result = either.json("lag", STORE, "readers")
    assert [one["lagGroups"] for one in result["shards"]] == [3, 0]
    assert result["lagGroups"] == 3
    assert 0 < result["lagSeconds"] < 3600
    knows_logs = "sdk" not in (either.folder / "config.toml").read_text()
    assert result["lagLogs"] == (6 if knows_logs else None)
    assert [(one["group"], one["lagGroups"]) for one in either.json("lag", STORE)] == [("readers", 3)]
    last = either("lag", STORE, "readers").out.splitlines()[-1].split()
    assert (last[0], last[3]) == ("total", "3")
    assert "ConsumerGroupNotExist" in either("lag", STORE, "none").err


def test_a_lag_that_is_not_known_is_not_zero(either: Cli) -> None:
    either.client.create_group(STORE, GROUP)
    either.client.put_logs(STORE, group_of("a"), hash_key=LOW)
    result = either.json("lag", STORE, "readers")
    assert [one["lagGroups"] for one in result["shards"]] == [None, 0]
    assert (result["lagGroups"], result["lagSeconds"]) == (None, None)
    known = Lag(groups=1, logs=2, seconds=3.0)
    assert total([known, Lag(groups=4, seconds=1.0)]) == Lag(groups=5, seconds=3.0)
    assert total([]) == Lag(groups=0, logs=0, seconds=0.0)


def test_a_watch_goes_on_until_it_is_interrupted(cli: Cli) -> None:
    prepared(cli)
    watch = ("lag", STORE, "readers", "--watch", "--interval", "0.1", "-o", "json")
    with cli.started(*watch) as running:

        def last() -> int | None:
            lines = [line for line in running.out.splitlines(keepends=True) if line.endswith("\n")]
            return json.loads(lines[-1])["lagGroups"] if lines else None

        wait_until(lambda: last() == 3, f"a lag; {running.err}")
        end = cli.client.get_cursor(STORE, 0, "end")
        cli.client.update_checkpoint(STORE, "readers", shard=0, cursor=end, consumer="", force=True)
        wait_until(lambda: last() == 0, f"no lag; {running.err}")
        assert running.interrupt(signal.SIGINT) == 0
        assert running.err == ""
