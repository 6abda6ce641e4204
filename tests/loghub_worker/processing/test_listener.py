"""A listener in the processes of a worker, and a tracker that seeks and pauses."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_consumer import Consumer, SubscriptionOptions
from loghub_consumer.errors import FatalError
from loghub_consumer.processes.child import ProcessShards, load_listener
from tests.loghub_consumer.support import GROUP, Seen, Site, running, wait_for
from tests.loghub_worker.processing.support import MODULE, Rig, put, rig
from tests.support import STOP_GUARD_S

pytestmark = pytest.mark.long


def heard(on: Rig) -> list[tuple[str, str, str]]:
    """What the listeners have learned: event, shard, and the shards of the process then."""
    events = ("assigned", "revoked", "lost")
    return [(line[2], line[3], line[4]) for line in on.lines() if line[2] in events]


def test_a_listener_in_each_process_learns_of_its_shards_and_may_seek(tmp_path: Path, site: Site) -> None:
    site.prepare(shards=2)
    put(site, "a", "b")
    put(site, "c", shard=1)
    with rig(tmp_path, processes=2, listener="FromTheBegin") as on:
        with running(on.consumer(site, start_position="end")):
            # Without it they would begin at their ends.
            wait_for(lambda: (on.ids(0), on.ids(1)) == (["a", "b"], ["c"]), "all logs")
            assert sorted(heard(on)) == [("assigned", "0", "0"), ("assigned", "1", "1")]
        assert sorted(heard(on)[2:]) == [("revoked", "0", "0"), ("revoked", "1", "1")]
        order = [line[2] for line in on.lines() if line[3] == "0"]
        assert order == ["assigned", "initialize", "log", "log", "revoked", "shutdown"]
        processes = {line[3]: line[0] for line in on.lines() if line[2] == "assigned"}
        assert len(set(processes.values())) == 2
        assert {line[3]: line[0] for line in on.lines() if line[2] == "log"} == processes


def test_a_listener_learns_that_a_shard_is_lost(tmp_path: Path, site: Site) -> None:
    site.prepare()
    with rig(tmp_path, listener="FromTheBegin") as on:
        with running(consumer := on.consumer(site)):
            wait_for(lambda: heard(on) == [("assigned", "0", "0")], "the shard")
            put(site, "a")
            wait_for(lambda: site.saved() == site.ends(), "the end")
            consumer.abandon()
            wait_for(lambda: len(heard(on)) > 1, "the listener")
        assert heard(on) == [("assigned", "0", "0"), ("lost", "0", "0")]


def test_the_listener_of_each_process_learns_where_another_consumer_is_active(
    tmp_path: Path, site: Site
) -> None:
    site.client.create_logstore(site.logstore, shards=2)
    spec = SubscriptionSpec(type=SubscriptionType.FAILOVER)
    site.client.create_subscription(site.logstore, GROUP, spec)

    def standby(priority: int) -> dict[str, Any]:
        how = SubscriptionOptions(type=SubscriptionType.FAILOVER, priority=priority)
        return {"subscription": how, "acknowledge": "log"}

    def reported() -> list[str]:
        return [line[3] for line in on.lines() if line[2] == "standby"]

    with (
        running(active := Consumer(site.settings("c-0", **standby(0)), Seen().factory)),
        rig(tmp_path, listener="StandbyToo", by_log=True) as on,
    ):
        wait_for(lambda: active.assignment() == (0, 1), "the active one")
        process = on.pool.start_first()
        with running(consumer := on.consumer(site, consumer="c-1", **standby(1))):
            wait_for(lambda: reported() == ["0,1"], "the stand-by")
            (before,) = on.pool.progress()
            assert before.pid is not None
            os.kill(before.pid, signal.SIGKILL)
            wait_for(lambda: reported() == ["0,1", "0,1"], "the next process")
            active.shutdown(STOP_GUARD_S)
            wait_for(lambda: consumer.assignment() == (0, 1), "the new active one")
            wait_for(lambda: reported() == ["0,1", "0,1", "-"], "no shard of others")
            wait_for(lambda: {line[3] for line in on.lines() if line[2] == "assigned"} == {"0", "1"}, "both")
        assert process.generation == 2, "an exception of the listener ends no process"


def test_a_shard_that_was_never_initialized_is_given_back(tmp_path: Path, site: Site) -> None:
    site.prepare()
    with rig(tmp_path, "NeverReady", listener="FromTheBegin") as on:
        with running(consumer := on.consumer(site)):
            # On a busy machine the process may miss its time before it has even begun.
            said = "nothing answers for shard 0"
            wait_for(lambda: any(said in error.message for error in consumer.errors()), said)
            assert on.pool.progress()[0].shards == [0]
        assert heard(on) == [("assigned", "0", "0"), ("revoked", "0", "0")]
        assert on.pool.progress()[0].shards == []


def test_a_process_that_is_replaced_seeks_no_shard_again(tmp_path: Path, site: Site) -> None:
    site.prepare()
    put(site, "a")
    with rig(tmp_path, listener="FromTheBegin") as on, running(on.consumer(site)):
        wait_for(lambda: site.saved() == site.ends(), "the first log")
        (before,) = on.pool.progress()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_for(lambda: on.pool.progress()[0].starts == 2, "another process")
        put(site, "b")
        wait_for(lambda: site.saved() == site.ends(), "the second log")
        assert on.ids() == ["a", "b"], "the position is that of the worker"
        assert heard(on) == [("assigned", "0", "0")]


def test_a_processor_pauses_its_shard_and_resumes_it(tmp_path: Path, site: Site) -> None:
    site.prepare(shards=2)
    with rig(tmp_path, "Pausing") as on, running(consumer := on.consumer(site)):
        put(site, "pause")
        wait_for(lambda: consumer.paused() == (0,), "the pause")
        put(site, "b")
        put(site, "other", shard=1)
        wait_for(lambda: on.ids(1) == ["other"], "the other shard")
        assert on.ids(0) == ["pause"]
        (tmp_path / "go").touch()
        wait_for(lambda: on.ids(0) == ["pause", "b"], "the shard to go on")


def test_a_shard_that_its_process_has_paused_goes_on_when_that_ends(tmp_path: Path, site: Site) -> None:
    """Nothing else would resume it."""
    site.prepare()
    with rig(tmp_path, "Pausing") as on, running(consumer := on.consumer(site)):
        put(site, "pause")
        wait_for(lambda: consumer.paused() == (0,), "the pause")
        # A log whose call has not ended comes again, and would pause the shard again.
        wait_for(lambda: site.saved() == site.ends(), "the end of the call")
        put(site, "b")
        (running_process,) = on.pool.progress()
        assert running_process.pid is not None
        os.kill(running_process.pid, signal.SIGKILL)
        wait_for(lambda: on.ids()[-1:] == ["b"], "the shard to go on")
        assert consumer.paused() == ()


def test_a_processor_seeks_in_its_shard(tmp_path: Path, site: Site) -> None:
    site.prepare()
    put(site, "a", "seek")
    with rig(tmp_path, "Pausing") as on, running(on.consumer(site, max_logs=2, max_wait_s=60.0)):
        wait_for(lambda: on.ids() == ["a", "seek"] * 2, "the same logs again")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_a_listener", "made object, not a loghub_consumer.Listener"),
        ("number", "is neither a class nor a function; name a class derived from loghub_consumer.Listener"),
        ("WithArguments", "made WithArguments, not a loghub_consumer.Listener"),
        ("Unfinished", "TypeError"),
    ],
)
def test_a_listener_that_cannot_be_made_is_a_reason_to_end(name: str, message: str) -> None:
    with pytest.raises(FatalError, match="InvalidPipeline") as raised:
        load_listener(f"{MODULE}:{name}", None, ProcessShards())
    assert message in raised.value.message
