"""A worker's threads in the test's process, on a real Spark and a real service, with a sink of the test."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from loghub.clock import SystemClock
from loghub.contract.worker import SqlPipeline, WorkerConfig
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.dead_letter import make_dead_letters
from loghub_consumer.failure.retry_logstore import Origin
from loghub_consumer.log_service import ConsumerIdentity, LogServiceAddress, connect
from loghub_consumer.membership.heartbeat import Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_consumer.membership.shard_manager import ParallelTasks, ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import SharedState
from loghub_worker.query.engine import Way, way_of
from loghub_worker.query.settings import QuerySettings
from loghub_worker.query.stateful_query import StatefulQueryRunner
from loghub_worker.query.streaming_query import QueryRunner
from loghub_worker.query.transform import Transform, empty_logs, make_transform
from loghub_worker.sink.files.source_files import LetsSourceWrite
from loghub_worker.state.ledger import StateLedger
from tests.loghub_worker.support import GROUP, LOGSTORE, PROJECT


class WorkerThreads:
    """The threads of one worker; `stop` checks that none of them failed."""

    def __init__(
        self,
        spark: SparkSession,
        config: WorkerConfig,
        sink: Any,
        credentials_dir: Path,
        folder: Path,
        *,
        name: str = "w-0",
        transform: Transform | None = None,
        ledger: StateLedger | None = None,
    ) -> None:
        """With `ledger`, the pipeline is stateful."""
        folder.mkdir(exist_ok=True)
        exchange, clock = ExchangeFiles(folder), SystemClock()
        self.exchange = exchange
        origin = Origin(project=PROJECT, logstore=LOGSTORE, consumer_group=GROUP)
        address = LogServiceAddress(
            endpoint=config.endpoint, project=PROJECT, credentials_dir=str(credentials_dir)
        )
        identity = ConsumerIdentity(logstore=LOGSTORE, group=GROUP, consumer=name)
        target = config.on_failure.dead_letter
        dead_letters = None if target is None else make_dead_letters(target, origin, address, agent=name)
        timings = MembershipTimings(interval_s=0.3, timeout_s=config.timeout_s, margin_s=0.5)
        self.shared_state = SharedState(Membership(timings), exchange, clock)
        with self.shared_state.use():
            pass
        self.heartbeat = Heartbeats(self.shared_state, connect(address), identity)
        client = connect(address)
        self.shard_manager = ShardManager(
            self.shared_state,
            client,
            ShardOpening(client, sink, identity, config=config, history=ledger),
            identity,
            config=config,
            tasks=ParallelTasks(),
        )
        runner = QueryRunner if ledger is None else StatefulQueryRunner
        self.way = Way(why="the test has a transform of its own")
        if transform is None:
            transform = make_transform(config.pipeline, None)
            self.way = checked_way(spark, config, transform, sink, name)
        self.query_runner = runner(
            QuerySettings(
                config=config,
                consumer=name,
                address=address,
                exchange=exchange,
                scratch=folder / "query" if ledger is None else ledger.checkpoint,
                journal=folder / "attempts.json",
                dead_letters=dead_letters,
                ledger=ledger,
                writing=self.way.writing,
            ),
            spark,
            self.shared_state,
            self.shard_manager,
            transform=transform,
            sink=sink,
        )

    def start(self) -> None:
        for part in (self.query_runner, self.shard_manager, self.heartbeat):
            part.start()

    def stop(self) -> None:
        for part in (self.heartbeat, self.shard_manager, self.query_runner):
            part.stop()
            assert part.failure is None


def checked_way(spark: SparkSession, config: WorkerConfig, transform: Transform, sink: Any, name: str) -> Way:
    """The way of the rows, as a worker chooses it."""
    if not isinstance(config.pipeline, SqlPipeline) or not isinstance(sink, LetsSourceWrite):
        return Way(why="not looked at")
    result = transform.check(empty_logs(spark))
    way = way_of(config, spark, result, sink, consumer=name)
    sink.check(result)
    return way
