"""A program whose processors run in processes of their own."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub_consumer import Consumer, MultiLogstoreConsumer, OnFailure, RetryLogstore, SqlCheckpointStore
from loghub_consumer.failure.policy import ShardTotals
from loghub_consumer.processes.program import entry_of
from tests.loghub_consumer.support import RecordingListener, Seen, Site, running, wait_for
from tests.loghub_worker.processing.processors import OUTPUT, Asynchronous, Recorder
from tests.loghub_worker.processing.support import put
from tests.support import ROOT, STOP_GUARD_S

SCRIPT = """
import json, os, signal
from pathlib import Path
from typing import Any
from loghub_consumer import Consumer, ConsumerSettings, Credentials, LogBatch, Processor, Tracker

class Mine(Processor):
    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        with open("seen", "a") as file:
            file.write(f"{os.getpid()} {len(logs.groups)}\\n")
        tracker.save()

def main() -> None:
    given, key = json.loads(Path("given").read_text())
    settings = ConsumerSettings(**given, credentials=Credentials(**key), processes=1)
    consumer = Consumer(settings, Mine)
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    consumer.run()

"""
GUARDED = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.long
def test_a_log_that_holds_the_interpreter_takes_no_shard_from_the_consumer(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than the timeout of the group. Its process is ended, and only it is skipped."""
    monkeypatch.setenv(OUTPUT, str(tmp_path / "processed"))
    site.prepare(shards=3, timeout_s=2)
    put(site, "a", "hang-1", "b", shard=1)
    put(site, "c", shard=2)
    listener = RecordingListener()
    policy = OnFailure(policy="Skip", max_attempts=1)
    settings = site.settings(
        on_failure=policy, processes=3, batch_timeout_s=3.0, max_bytes=1, checkpoint_interval_s=0.0
    )
    with running(consumer := Consumer(settings, Recorder, listener)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert consumer.failure_report().totals[1].skipped == 1
        assert listener.shards("lost") == set()
    words = [line.split() for line in (tmp_path / "processed").read_text().splitlines()]
    assert sorted(line[4] for line in words if line[2] == "log") == ["a", "b", "c"]
    assert str(os.getpid()) not in {line[0] for line in words}


@pytest.mark.long
@pytest.mark.parametrize("ending", [GUARDED, "main()\n"], ids=["guarded", "not"])
def test_a_script_has_its_processor_in_the_same_file(site: Site, tmp_path: Path, ending: str) -> None:
    site.prepare()
    site.put(3)
    (tmp_path / "script.py").write_text(SCRIPT + ending)
    key = site.service.credentials
    names = {"access_key_id": key.access_key_id, "access_key_secret": key.access_key_secret}
    (tmp_path / "given").write_text(json.dumps([site.plain_settings(), names]))
    with (tmp_path / "errors").open("wb") as errors:
        program = subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py")],
            cwd=tmp_path,
            env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
            stderr=errors,
        )
    try:
        if ending == GUARDED:
            wait_for(lambda: site.saved() == site.ends(), "the end")
            program.send_signal(signal.SIGTERM)
            assert program.wait(STOP_GUARD_S) == 0
            pids = {line.split()[0] for line in (tmp_path / "seen").read_text().splitlines()}
            assert pids != {str(program.pid)}
        else:
            assert program.wait(STOP_GUARD_S) == 1
            assert 'put that under if __name__ == "__main__":' in (tmp_path / "errors").read_text()
    finally:
        program.kill()
        program.wait()


PAIRS: dict[str, dict[str, Any]] = {
    "retry": {"on_failure": OnFailure(policy="Skip", max_attempts=1), "retry": RetryLogstore(logstore="")},
    "by-log-and-fan-out": {"acknowledge": "log", "on_failure": OnFailure(policy="Skip", max_attempts=3)},
    "until-a-time": {"on_failure": OnFailure(policy="Skip", max_attempts=1), "end_time_s": 0},
}


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("pair", list(PAIRS))
def test_with_each_other_feature_good_logs_are_processed_and_bad_ones_settled(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str
) -> None:
    """A log for which `process` raises, and one that ends its process."""
    monkeypatch.setenv(OUTPUT, str(tmp_path / "processed"))
    site.prepare(shards=2)
    ends = "exit-1" if pair != "by-log-and-fan-out" else "raise-2"  # who has ended it would not be known
    put(site, "a", "raise-1", "b", ends, "c")
    put(site, "d", "e", shard=1)
    settings = {"max_bytes": 1, "checkpoint_interval_s": 0.0, "redelivery_delay_s": 0.05} | PAIRS[pair]
    if pair == "retry":
        site.client.create_logstore(f"{site.logstore}-retry", shards=1)
        settings["retry"] = RetryLogstore(logstore=f"{site.logstore}-retry", delays_s=(0.1,))
    if pair == "until-a-time":
        settings["end_time_s"] = int(SystemClock().unix_s()) + 1
    factory = f"{Recorder.__module__}:{'fanned' if 'fan-out' in pair else 'Recorder'}"

    def processed() -> list[str]:
        output = tmp_path / "processed"
        words = [line.split() for line in output.read_text().splitlines()] if output.exists() else []
        return sorted({line[4] for line in words if line[2] == "log"} - {"raise-1", ends})

    consumer = Consumer(site.settings(processes=2, **settings), factory)
    with running(consumer):
        wait_for(lambda: processed() == ["a", "b", "c", "d", "e"], "the good ones")
        wait_for(lambda: sum(one.skipped for one in totals(consumer)) == 2, "the others to be skipped")


def totals(consumer: Consumer) -> list[ShardTotals]:
    return list(consumer.failure_report().totals.values())


def local() -> Recorder:
    return Recorder()


def test_a_factory_has_a_name_by_which_the_processes_import_it() -> None:
    assert entry_of(Recorder) == "tests.loghub_worker.processing.processors:Recorder"
    assert entry_of(local) == f"{__name__}:local"
    assert entry_of("counts:fanned") == "counts:fanned"
    for wrong in (lambda: Recorder(), partial(Recorder), Seen().factory):
        with pytest.raises(ValueError, match="give a class or a function of a module, or its name"):
            entry_of(wrong)


def test_settings_that_cannot_work_with_processes_are_refused(site: Site, tmp_path: Path) -> None:
    store = SqlCheckpointStore(partial(sqlite3.connect, tmp_path / "x"), paramstyle="qmark")
    with pytest.raises(ValueError, match="checkpoint_store needs processes=0"):
        site.settings(processes=1, checkpoint_store=store)
    with pytest.raises(ValueError, match="query needs processes=0"):
        site.settings(processes=1, query="*")
    with pytest.raises(ValueError, match="processes is -1; it must be at least 0"):
        site.settings(processes=-1)
    with pytest.raises(ValueError, match="batch_timeout_s is 0"):
        site.settings(processes=1, batch_timeout_s=0)
    with pytest.raises(TypeError, match="a name needs processes above 0"):
        Consumer(site.settings(), "counts:Count")
    several = replace(site.settings(processes=1), logstore="")
    with pytest.raises(ValueError, match="run a Consumer for each logstore"):
        MultiLogstoreConsumer(several, lambda _: Asynchronous, re.compile("a"))


@pytest.mark.long
def test_a_factory_that_the_processes_cannot_import_ends_the_program(site: Site) -> None:
    site.prepare()
    with pytest.raises(RuntimeError, match="has no attribute 'Missing'"):
        Consumer(site.settings(processes=1), f"{Recorder.__module__}:Missing").run()
    with pytest.raises(RuntimeError, match=r"set ConsumerSettings\.acknowledge to 'log'"):
        Consumer(site.settings(processes=1), f"{Recorder.__module__}:fanned").run()
