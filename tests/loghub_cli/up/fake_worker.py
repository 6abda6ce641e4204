"""A worker without Spark for the supervisor's tests: implements `loghub.contract.worker` and holds no shard.

It starts at once. The SQL selects its behavior by a prefix: ``die:`` ends with a termination message,
``silent-death:`` without one, ``deaf:`` ignores SIGTERM, ``child:`` starts a process with a group of its own.
A trial (`loghub_worker.start_check`) ends at once, with the message of ``die:`` if it is that; of ``hang:``
never.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from loghub.contract import worker as contract


def main() -> int:
    environment = os.environ
    config = json.loads(Path(environment[contract.ENV_CONFIG]).read_text())
    how = config["pipeline"]["text"].partition(":")[0]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: None if how == "deaf" else stopped.append(number))
    if how == "die":
        Path(environment[contract.ENV_TERMINATION_LOG]).write_text("InvalidPipeline: no such column")
        return 1
    if how == "silent-death":
        return 3
    if sys.argv[1:] == ["check"] and how != "hang":
        return 0
    if how == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
        Path(environment[contract.ENV_STATE_DIR], "child").write_text(str(child.pid))
    while not stopped:
        _tell(environment)
        time.sleep(0.02)
    return 0


def _tell(environment: "os._Environ[str]") -> None:
    drain = Path(environment[contract.ENV_DRAIN_FILE])
    drained = drain.exists() and drain.read_text() == contract.DRAIN_REQUESTED
    status: dict[str, object] = {
        "consumer": environment[contract.ENV_CONSUMER],
        "phase": "left" if drained else "running",
        "reason": "",
        "message": "",
        "rows_written": 0,
        "last_heartbeat_age_s": 0.0,
        "shards": [],
        "written_at": time.time(),
    }
    path = Path(environment[contract.ENV_STATUS_FILE])
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(status))
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
