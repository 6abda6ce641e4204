"""Consumes a logstore with the vendor's Python library, as `tests.compat.consumers` describes."""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from aliyun.log.auth import AUTH_VERSION_1, AUTH_VERSION_4
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, CursorPosition, LogHubConfig

POSITIONS = {"begin": CursorPosition.BEGIN_CURSOR, "end": CursorPosition.END_CURSOR}
config: dict[str, Any] = json.load(sys.stdin)
printing = threading.Lock()
rolled_back = threading.Event()


class Writer(ConsumerProcessorBase):  # type: ignore[misc]
    """Prints the lines of a batch, then saves the checkpoint."""

    def process(self, log_groups: Any, check_point_tracker: Any) -> str | None:
        lines = [
            content.Value for group in log_groups.LogGroups for log in group.Logs for content in log.Contents
        ]
        while Path(config["holdFile"]).exists():
            time.sleep(0.05)
        with printing:
            print(json.dumps({"shard": self.shard_id, "lines": lines}), flush=True)
            if config["rollBackAt"] in lines and not rolled_back.is_set():
                rolled_back.set()
                position: str = config["rollBackTo"]
                return position
        self.save_checkpoint(check_point_tracker, force=True)
        return None


def main() -> None:
    is_time = config["from"] not in POSITIONS
    settings = LogHubConfig(
        config["endpoint"],
        config["keyId"],
        config["keySecret"],
        config["project"],
        config["logstore"],
        config["group"],
        config["consumer"],
        cursor_position=CursorPosition.SPECIAL_TIMER_CURSOR if is_time else POSITIONS[config["from"]],
        cursor_start_time=config["from"] if is_time else -1,
        heartbeat_interval=config["heartbeatS"],
        data_fetch_interval=0.1,
        in_order=config["inOrder"],
        worker_pool_size=4,
        auth_version=AUTH_VERSION_4 if config["signV4"] else AUTH_VERSION_1,
        region="embedded",
    )
    settings.consumer_group_time_out = config["timeoutS"]
    worker = ConsumerWorker(Writer, settings)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=worker.shutdown).start())
    worker.start()
    while worker.is_alive():
        worker.join(0.2)


if __name__ == "__main__":
    main()
