"""What a consumer of a subscription costs, and what it waits for.

``python -m tests.loghub_consumer.bench_subscription`` prints a row for each way to acknowledge 100,000 logs
of one shard: the seconds, the CPU seconds of consumer and service, and the calls that received and that
settled. On a machine with other work only the CPU seconds and the calls say something.
"""

import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loghub.client.http import HttpLogHub
from loghub.domain.subscription import SubscriptionType
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import Exchange, Exchanged
from loghub_consumer import Consumer, ConsumerSettings, LogBatch, Processor, SubscriptionOptions, Tracker
from tests.loghub.load import cpu_s
from tests.support import STOP_GUARD_S, ServiceProcess, running_service

LOGSTORE, GROUPS, GROUP_LOGS = "access", 100, 1_000
GUARD_S = 600.0


@dataclass(frozen=True, slots=True)
class Way:
    """How one row acknowledges."""

    name: str
    kind: SubscriptionType
    by_log: bool


WAYS = (
    Way("Shared, whole batches", SubscriptionType.SHARED, by_log=False),
    Way("Shared, each log", SubscriptionType.SHARED, by_log=True),
    Way("KeyShared, each log", SubscriptionType.KEY_SHARED, by_log=True),
    Way("Failover, each log", SubscriptionType.FAILOVER, by_log=True),
)


def measured(service: ServiceProcess, way: Way) -> str:
    logs, done, calls = [0], threading.Event(), Counter[str]()

    class Acknowledging(Processor):
        def process(self, batch: LogBatch, tracker: Tracker) -> None:
            for group in batch.groups:
                for log in group.logs if way.by_log else ():
                    tracker.ack(log)
                logs[0] += len(group)
            if not way.by_log:
                tracker.ack()
            if logs[0] >= GROUPS * GROUP_LOGS:
                done.set()

    key = ("id",) if way.kind is SubscriptionType.KEY_SHARED else ()
    settings = ConsumerSettings(
        endpoint=service.endpoint,
        project="demo",
        logstore=LOGSTORE,
        consumer_group=f"by-{len(way.name)}-{way.kind.value}",
        consumer="c-0",
        credentials=service.credentials,
        subscription=SubscriptionOptions(type=way.kind, key=key),
        acknowledge="log",
        create_group=True,
    )
    consumer = Consumer(settings, Acknowledging)
    client: Any = consumer._client
    send = client.exchange

    def counted(logstore: str, name: str, exchange: Exchange) -> Exchanged:
        calls["settle" if exchange.number is None else "receive"] += 1
        answer: Exchanged = send(logstore, name, exchange)
        return answer

    client.exchange = counted
    before = time.monotonic(), time.process_time(), cpu_s(service.pid)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        assert done.wait(GUARD_S), "the logs did not come"
    finally:
        consumer.shutdown(STOP_GUARD_S)
        thread.join(STOP_GUARD_S)
    wall, own, of_service = (
        now - then
        for now, then in zip((time.monotonic(), time.process_time(), cpu_s(service.pid)), before, strict=True)
    )
    return (
        f"| {way.name} | {wall:.1f} | {own:.2f} | {of_service:.2f} | {calls['receive']} | {calls['settle']} |"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder)) as service:
        client = HttpLogHub(service.endpoint, "demo", credentials=service.credentials)
        client.create_project()
        client.create_logstore(LOGSTORE, shards=1)
        logs = (Log(time=1, contents=(("id", str(n)), ("text", "x" * 180))) for n in range(GROUP_LOGS))
        body = encode(LogGroup(logs=tuple(logs)))
        for _ in range(GROUPS):
            client.put_logs(LOGSTORE, body)
        print("| 100,000 logs | s | consumer's CPU, s | service's | receives | other calls |")
        print("| --- | --- | --- | --- | --- | --- |")
        for way in WAYS:
            print(measured(service, way), flush=True)
        client.close()


if __name__ == "__main__":
    main()
