"""The example with a processor, run by `loghub up` as its first lines say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.support import ROOT, STOP_GUARD_S, running_service, wait_until

EXAMPLE = ROOT / "deploy" / "examples" / "processor.yaml"
LINE = '192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET /a HTTP/1.1" {status} 2326'
FIRST_MINUTE = 1_700_000_040


@pytest.mark.long
def test_the_example_runs_with_loghub_up_and_counts(tmp_path: Path) -> None:
    with running_service(tmp_path / "service") as service:
        client = HttpLogHub(service.endpoint, "demo", credentials=service.credentials)
        client.create_project("tests")
        client.create_logstore("access", shards=1)
        for minute, statuses in enumerate(((200, 200, 404), (500,), (200,))):
            logs = tuple(
                Log(time=FIRST_MINUTE + 60 * minute, contents=(("line", LINE.format(status=status)),))
                for status in statuses
            )
            client.put_logs("access", encode(LogGroup(logs=logs)))
        command = [sys.executable, "-m", "loghub_operator.local.cli", "up", "-f", str(EXAMPLE), "--plain"]
        command += ["--state-dir", str(tmp_path / "state"), "--endpoint", service.endpoint]
        key = service.credentials
        keys = {
            "LOGHUB_ACCESS_KEY_ID": key.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": key.access_key_secret,
        }
        with (tmp_path / "output").open("wb") as output:
            up = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | keys, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            log = tmp_path / "state/groups/count-by-status/workers/count-by-status-0/log"
            wait_until(lambda: log.exists() and "'500': 1" in log.read_text(), "the counts of two minutes")
            shown = tmp_path / "output"
            wait_until(lambda: "shards 0, 5 rows" in shown.read_text(), "the logs in the live view")
            up.send_signal(signal.SIGINT)
            assert up.wait(STOP_GUARD_S) == 0
        finally:
            up.kill()
            up.wait(STOP_GUARD_S)
            print((tmp_path / "output").read_text())
        counts = [line.split(": ", 1)[1] for line in log.read_text().splitlines() if " shard 0: {" in line]
        assert counts == ["{'200': 2, '404': 1}", "{'500': 1}", "{'200': 1}"], "the last one at the shutdown"
        (checkpoint,) = client.get_checkpoints("access", "count-by-status")
        assert checkpoint.cursor == client.get_cursor("access", 0, "end")
        client.close()
