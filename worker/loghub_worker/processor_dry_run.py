"""A processor over given logs (`loghub_worker.dry_run`): one for each shard, one after the other, by the code
that calls it in a consumer (`loghub_consumer.testing`). Pauses before logs come again are skipped."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from loghub.contract.dry_run import DryRunReport, LogSample, RejectedLogs, SampledGroup
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.worker import OnFailure
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch import count_logs
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.outage import decisive
from loghub_consumer.log_service import PIPELINE_FAILED
from loghub_consumer.processes.child import ProcessShards
from loghub_consumer.processor import Processor
from loghub_consumer.settings import ConsumerSettings
from loghub_consumer.shard_runner import PROCESSOR_FAILED
from loghub_consumer.testing import ProcessorRun, run_encoded
from loghub_consumer.user_code import user_message
from loghub_worker.attempts import logs_in
from loghub_worker.processing.processor_worker import consumer_settings
from loghub_worker.settings import WorkerSettings
from loghub_worker.start_check import load_processor, user_code

MAX_S = 300.0  # of a shard: half of what `loghub try` waits by default, so that the reason is this one
UNFINISHED = "the processor has neither acknowledged nor refused it, or refuses it as in an outage"
NO_LISTENER = "the listener is made, and not called"


def run_processor(settings: WorkerSettings, sample: LogSample) -> DryRunReport:
    """Raises `FatalError` with the reason for which a worker would end, or would wait."""
    pipeline = settings.config.pipeline
    assert isinstance(pipeline, ProcessorPipeline)
    code = user_code(settings)
    factory, listener = load_processor(pipeline, code, ProcessShards())
    rejected = list[RejectedLogs]()
    for shard in sorted({group.shard for group in sample.groups}):
        groups = [group for group in sample.groups if group.shard == shard]
        try:
            run = run_encoded(
                factory, [group.log_group for group in groups], _settings(settings), guard_s=MAX_S
            )
        except FatalError:
            raise
        except BaseException as error:  # user code; SystemExit, too
            raise FatalError(PIPELINE_FAILED, user_message(decisive(error), code)) from error
        rejected += _rejected(groups, run)
    logs = logs_in(sample.groups)
    return DryRunReport(
        logs=logs,
        done=logs - sum(one.logs for one in rejected),
        rejected=rejected,
        notes=[] if listener is None else [NO_LISTENER],
    )


def _settings(settings: WorkerSettings) -> ConsumerSettings:
    """Of a worker; logs that fail as often as its policy allows are named, whatever it is."""
    policy = OnFailure(policy="Skip", max_attempts=settings.config.on_failure.max_attempts)
    return replace(consumer_settings(settings), on_failure=policy, retry=None, subscription=None)


def _rejected(groups: Sequence[SampledGroup], run: ProcessorRun[Processor]) -> list[RejectedLogs]:
    counted = Counter((one.number, one.reason, one.message) for one in run.rejected)
    rejected = [
        # A worker has its own word for an exception of the code, which it calls in another process.
        _of_group(groups[number], logs, PIPELINE_FAILED if reason == PROCESSOR_FAILED else reason, message)
        for (number, reason, message), logs in counted.items()
    ]
    for number in run.unfinished:
        logs = count_logs(groups[number].log_group) - sum(one.number == number for one in run.rejected)
        rejected.append(_of_group(groups[number], logs, "Unfinished", UNFINISHED))
    return sorted(rejected, key=lambda one: decode_cursor(one.cursor))


def _of_group(group: SampledGroup, logs: int, reason: str, message: str) -> RejectedLogs:
    return RejectedLogs(
        shard=group.shard, cursor=encode_cursor(group.cursor), logs=logs, reason=reason, message=message
    )
