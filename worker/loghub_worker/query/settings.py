"""The settings of a query runner, and the part of them for the source."""

from dataclasses import asdict, dataclass
from pathlib import Path

from loghub.contract.sinks import LogstoreSink, roll_of
from loghub.contract.worker import CopyPipeline, WorkerConfig
from loghub_consumer.exchange_files import ExchangeFiles
from loghub_consumer.failure.dead_letter import DeadLetters
from loghub_consumer.log_service import LogServiceAddress
from loghub_consumer.reading.decoding import EVERYTHING, Selection
from loghub_worker.sink.files.source_files import SourceWriting
from loghub_worker.source import SourceOptions
from loghub_worker.state.ledger import StateLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """The settings of the query, and the folders that it uses."""

    config: WorkerConfig
    consumer: str  # part of the name of each batch
    address: LogServiceAddress
    exchange: ExchangeFiles  # the files of the shared state
    scratch: Path  # Spark's checkpoint directory; emptied before each start, unless there is a ledger
    journal: Path  # file of `loghub_consumer.failure.handler`
    dead_letters: DeadLetters | None = None  # if the group's policy is a dead letter
    ledger: StateLedger | None = None  # set if and only if the pipeline is stateful
    selection: Selection = EVERYTHING  # the columns that the transform needs
    writing: SourceWriting | None = None  # if the source writes the files of the sink

    def source_options(self) -> SourceOptions:
        """The options of the data source."""
        config, roll = self.config, roll_of(self.config.sink)
        return SourceOptions(
            **asdict(self.address),
            logstore=config.logstore,
            exchange_dir=str(self.exchange.folder),
            fetch_interval_s=config.fetch_interval_s,
            batch_interval_s=config.trigger_interval_s,
            max_log_groups=config.max_log_groups,
            max_bytes=config.max_bytes,
            max_logs=config.max_logs,
            cores=config.cores,
            copy_to=copy_target(config),
            columns=self.selection.view,
            keys=self.selection.keys,
            writing="" if self.writing is None else self.writing.to_text(),
            levels=config.stateful,
            roll_bytes=None if roll is None else roll.target_bytes,
            roll_delay_s=0.0 if roll is None else roll.max_delay_s,
        )


def copy_target(config: WorkerConfig) -> str:
    """The logstore to which the source copies log groups, as `SourceOptions.copy_to`; empty if it does
    not."""
    if isinstance(config.pipeline, CopyPipeline) and isinstance(config.sink, LogstoreSink):
        return f"{config.sink.project}/{config.sink.logstore}"
    return ""
