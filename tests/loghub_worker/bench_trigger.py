"""How long a worker waits from the end of a micro-batch to the begin of the next one while logs wait.

``python -m tests.loghub_worker.bench_trigger [BATCHES [ROUNDS]]`` starts workers in turn, with a trigger of 0
and of 10 seconds, on a logstore that has logs for so many micro-batches. A worker counts its batches and the
seconds that it has spent in them. What is left of the time in which it delivered them is between them:
Spark's log of the next batch, its planning, and any pause for the trigger. The seconds are those of a quiet
machine only; compare the two triggers."""

import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import ENV_METRICS_ADDRESS, SqlPipeline
from tests.loghub_worker.bench_logs import fill
from tests.loghub_worker.bench_pipeline import FIELDS, SHARDS, begin_again
from tests.loghub_worker.bench_rounds import ROUNDS, in_turn, spread
from tests.loghub_worker.support import GUARD_S, prepare, worker_config, worker_processes
from tests.ports import free_ports
from tests.support import ServiceProcess, get, running_service, wait_until

LOGS_OF_A_BATCH, LOGS_PER_GROUP = 20_000, 200
TRIGGERS_S = (0.0, 10.0)
WARM_BATCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What a worker has counted, at the end of a batch."""

    at_s: float
    batches: int
    in_batches_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Means of the batches of one worker."""

    batch_s: float
    between_s: float


def counted(address: str) -> Counted | None:
    """As of now; None before the worker has a query."""
    status, body = get(address, "/metrics")
    if status != 200:
        return None
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.labels
    }
    if "loghub_worker_batches_total" not in samples:  # Spark has not started
        return None
    return Counted(
        at_s=time.perf_counter(),
        batches=int(samples["loghub_worker_batches_total"]),
        in_batches_s=samples["loghub_worker_batch_duration_seconds_total"],
    )


def pace(service: ServiceProcess, client: HttpLogHub, batches: int, trigger_s: float) -> Pace:
    begin_again(client)
    with tempfile.TemporaryDirectory() as name:
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        config = worker_config(
            service.endpoint,
            ParquetSink(path=str(Path(name, "sink"))),
            pipeline=SqlPipeline(text=FIELDS),
            fetch_interval_s=1.0,
            trigger_interval_s=trigger_s,
            max_log_groups=1_000_000,
            max_logs=LOGS_OF_A_BATCH,
            checkpoint_interval_s=5.0,
            spark_conf={},
        )
        with (
            redirect_stdout(sys.stderr),
            worker_processes(Path(name), service, {ENV_METRICS_ADDRESS: address}) as workers,
        ):
            worker = workers.start("w-0", config)

            def after(number: int) -> Counted:
                found: list[Counted] = []

                def has_ended() -> bool:
                    assert worker.process.poll() is None, worker.log_tail()
                    now = counted(address)
                    found[:] = [now] if now is not None and now.batches >= number else []
                    return bool(found)

                wait_until(has_ended, f"{number} batches", guard_s=GUARD_S)
                return found[0]

            first = after(WARM_BATCHES)
            # The last ones may be smaller, and after them the trigger counts.
            last = after(batches - 2)
    number = last.batches - first.batches
    batch_s = (last.in_batches_s - first.in_batches_s) / number
    return Pace(batch_s=batch_s, between_s=(last.at_s - first.at_s) / number - batch_s)


def main(batches: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=SHARDS)
        fill(service, logs=batches * LOGS_OF_A_BATCH, per_group=LOGS_PER_GROUP)
        programs = {
            f"trigger {trigger_s:.0f} s": partial(pace, service, client, batches, trigger_s)
            for trigger_s in TRIGGERS_S
        }
        paces = in_turn(programs, rounds)
        client.close()
    print(
        f"batches of {LOGS_OF_A_BATCH} logs; ms: median (least to greatest) of the means of {rounds} rounds"
    )
    print(f"{'':16}{'in a batch':>24}{'to the next one':>24}")
    for label, found in paces.items():
        inside = spread([one.batch_s * 1000 for one in found], 0)
        between = spread([one.between_s * 1000 for one in found], 0)
        print(f"{label:16}{inside:>24}{between:>24}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else 60, given[1] if len(given) > 1 else ROUNDS)
