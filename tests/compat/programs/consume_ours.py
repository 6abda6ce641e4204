"""Consumes a logstore with the processor API of this project, as `tests.compat.consumers` describes."""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from loghub.client.port import Credentials
from loghub_consumer import Consumer, ConsumerSettings, LogBatch, Processor, Tracker

config: dict[str, Any] = json.load(sys.stdin)
printing = threading.Lock()
rolled_back = threading.Event()


class Writer(Processor):
    """Prints the lines of a batch, then saves the checkpoint."""

    def initialize(self, shard: int) -> None:
        self.shard = shard

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        lines = [value for group in logs.groups for log in group.logs for _, value in log.contents]
        while Path(config["holdFile"]).exists():
            time.sleep(0.05)
        with printing:
            print(json.dumps({"shard": self.shard, "lines": lines}), flush=True)
            if config["rollBackAt"] in lines and not rolled_back.is_set():
                rolled_back.set()
                position: str = config["rollBackTo"]
                return position
        tracker.save()
        return None


def main() -> None:
    key = Credentials(access_key_id=config["keyId"], access_key_secret=config["keySecret"])
    start = config["from"]
    consumer = Consumer(
        ConsumerSettings(
            endpoint=config["endpoint"],
            project=config["project"],
            logstore=config["logstore"],
            consumer_group=config["group"],
            consumer=config["consumer"],
            credentials=lambda: key,
            create_group=True,
            timeout_s=config["timeoutS"],
            heartbeat_interval_s=config["heartbeatS"],
            in_order=config["inOrder"],
            start_position=start if start in ("begin", "end") else int(start),
        ),
        Writer,
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    consumer.run()


if __name__ == "__main__":
    main()
