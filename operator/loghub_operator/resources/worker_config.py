"""The settings of the workers of one consumer group.

`worker_config` turns a CR into a `WorkerConfig` that is the same for every worker and both backends; its hash
shows whether a running worker has other settings.
"""

import hashlib
import math

from loghub.contract.processor import ProcessorPipeline, ProcessorSubscription, RetryLogstore
from loghub.contract.sinks import NoSink, Sink
from loghub.contract.worker import (
    CONTRACT_VERSION,
    LOCAL_MASTER,
    CopyPipeline,
    DeadLetterFolder,
    DeadLetterLogstore,
    ExecutorSettings,
    LogFile,
    LogSettings,
    OnFailure,
    Pipeline,
    PythonPipeline,
    SqlPipeline,
    WorkerConfig,
    encode_settings,
)
from loghub_operator.api import fields
from loghub_operator.api import processor as api
from loghub_operator.api.sinks import SinkContext
from loghub_operator.api.spark import Executors, Spark
from loghub_operator.api.status import executed_nonces
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Placement

DEFAULT_MEMORY = "512m"  # the same default as in `loghub_worker.query.spark_session`
DRAIN_TIMEOUT_S = 30  # for running batches; with AFTER_DRAIN_S a pod ends within 45 s
_HEAP_OF_A_TASK = 10  # bytes of heap for each byte of the logs that a task reads for a table
# After the drain has ended: the last heartbeat, the leave call and its retries.
AFTER_DRAIN_S = 15


def worker_config(
    resource: LogHubConsumerGroup, placement: Placement, *, last_initial_shard: int | None = None
) -> WorkerConfig:
    """The settings that each worker of this group receives."""
    spec = resource.spec
    return WorkerConfig(
        contract_version=CONTRACT_VERSION,
        endpoint=placement.endpoint,
        project=spec.project,
        logstore=spec.logstore,
        consumer_group=resource.group,
        heartbeat_interval_s=float(spec.heartbeat_interval_seconds),
        timeout_s=spec.timeout_seconds,
        start_position=spec.start_position.begin_end_or_unix_s(),
        last_initial_shard=last_initial_shard,
        fetch_interval_s=spec.fetch.interval_s,
        max_log_groups=spec.fetch.max_log_groups,
        max_bytes=_max_bytes(resource),
        max_logs=spec.fetch.max_logs,
        checkpoint_interval_s=float(spec.checkpoint.interval_seconds),
        trigger_interval_s=spec.pipeline.trigger.interval_s,
        pipeline=_pipeline(resource, placement),
        per_batch=spec.pipeline.per_batch,
        engine=spec.pipeline.engine.value,
        stateful=spec.pipeline.stateful,
        reset=_reset(resource),
        sink=_sink(resource, placement),
        cores=spec.spark.cores,
        spark_master=_master(spec.spark, placement),
        executors=_executors(spec.spark, placement),
        spark_memory=spec.spark.memory,
        spark_conf=dict(spec.spark.conf),
        drain_timeout_s=float(DRAIN_TIMEOUT_S),
        batch_timeout_s=float(spec.pipeline.batch_timeout_seconds),
        on_failure=_on_failure(resource, placement),
        log=_log(resource, placement),
    )


def heap_mib(spark: Spark) -> int:
    """Heap of Spark's JVM."""
    text = spark.memory or DEFAULT_MEMORY
    return int(text[:-1]) * (1024 if text[-1] == "g" else 1)


def processes_of(resource: LogHubConsumerGroup) -> int:
    """The number of processes of a worker with a processor; 0: the worker finds out how many cores it has,
    since it has no limit of CPU."""
    processor = resource.spec.pipeline.processor
    assert processor is not None
    limit = resource.spec.worker.resources.limits.get("cpu")
    if processor.processes or limit is None:
        return processor.processes
    return min(api.MAX_PROCESSES, max(1, math.ceil(fields.amount(limit))))


def config_hash(config: WorkerConfig) -> str:
    """16 hex digits; the same in all processes and releases for the same settings."""
    return hashlib.sha256(encode_settings(config)).hexdigest()[:16]


def _reset(resource: LogHubConsumerGroup) -> str:
    """The last reset that changed checkpoints, for workers whose state was made of the logs before it. One
    that failed before leaves the state as it is; one in the first manifest counts as executed.
    """
    if not resource.spec.pipeline.stateful:
        return ""
    executed = executed_nonces(resource.status)
    if not executed and resource.is_new:
        return resource.spec.reset_nonce or ""
    return executed[-1] if executed else ""


def _max_bytes(resource: LogHubConsumerGroup) -> int:
    """The limit of bytes for a shard in a micro-batch. On the way to a table, the rows of each running task
    are in the heap several times (docs/sinks.md 3.4)."""
    spec = resource.spec
    if spec.pipeline.sink is None or spec.pipeline.sink.postgresql is None:
        return spec.fetch.max_bytes
    return min(spec.fetch.max_bytes, (heap_mib(spec.spark) << 20) // (_HEAP_OF_A_TASK * spec.spark.cores))


def _master(spark: Spark, placement: Placement) -> str:
    """Where there are no pods, the worker's process does what executors would."""
    return LOCAL_MASTER if spark.makes_pods and not placement.has_pods else spark.master


def _executors(spark: Spark, placement: Placement) -> ExecutorSettings | None:
    """Without the pod, which depends on the pod template (`loghub_operator.resources.statefulset`)."""
    if not spark.makes_pods or not placement.has_pods:
        return None
    executors = spark.executors or Executors()
    return ExecutorSettings(
        cores=executors.cores,
        memory=executors.memory,
        memory_overhead=executors.memory_overhead,
        cpu=str(executors.cores if executors.cpu is None else executors.cpu),
        pod={},
    )


def _pipeline(resource: LogHubConsumerGroup, placement: Placement) -> Pipeline:
    pipeline = resource.spec.pipeline
    if pipeline.copies:
        return CopyPipeline()
    if pipeline.sql is not None:
        return SqlPipeline(text=pipeline.sql)
    code, python, processor = pipeline.code, pipeline.python, pipeline.processor
    assert code is not None  # a rule of the CR
    claim = code.volume_claim
    files = dict(placement.code.files) if code.config_map is not None else {}
    folder = None if claim is None else "/".join(filter(None, (placement.code_root, claim.path)))
    if python is not None:
        return PythonPipeline(function=python.function, files=files, folder=folder)
    assert processor is not None
    return ProcessorPipeline(
        factory=processor.factory,
        listener=processor.listener,
        files=files,
        folder=folder,
        processes=processes_of(resource),
        load_timeout_s=float(processor.load_timeout_seconds),
        max_logs=processor.batch.max_logs,
        max_bytes=processor.batch.max_bytes,
        max_wait_s=processor.batch.max_wait_milliseconds / 1000,
        acknowledge="log" if processor.acknowledge is api.AcknowledgeMode.LOG else "batch",
        redelivery_delay_s=processor.redelivery.delay_milliseconds / 1000,
        max_redelivery_delay_s=processor.redelivery.max_delay_milliseconds / 1000,
        ack_timeout_s=_seconds(processor.redelivery.ack_timeout_seconds),
        max_ack_timeout_s=_seconds(processor.redelivery.max_ack_timeout_seconds),
        max_unacknowledged=processor.redelivery.max_unacknowledged,
        retry=_retry(processor.retry_logstore),
        subscription=_subscription(resource),
    )


def _subscription(resource: LogHubConsumerGroup) -> ProcessorSubscription | None:
    """Without key and order, which the log service stores: a change of these restarts no worker by itself."""
    asked = resource.spec.subscription
    return None if asked is None else ProcessorSubscription(type=asked.type, priority=asked.priority)


def _seconds(seconds: int | None) -> float | None:
    return None if seconds is None else float(seconds)


def _retry(retry: api.RetryLogstore | None) -> RetryLogstore | None:
    if retry is None:
        return None
    return RetryLogstore(logstore=retry.name, delays_s=tuple(map(float, retry.delays_seconds)))


def _sink(resource: LogHubConsumerGroup, placement: Placement) -> Sink:
    sink = resource.spec.pipeline.sink
    if sink is None:
        return NoSink()
    return sink.settings(
        SinkContext(
            project=resource.spec.project, in_order=resource.spec.in_order, volume=placement.sink_root
        )
    )


def _on_failure(resource: LogHubConsumerGroup, placement: Placement) -> OnFailure:
    settings = resource.spec.pipeline.on_failure
    dead_letter: DeadLetterLogstore | DeadLetterFolder | None = None
    if settings.folder is not None:
        dead_letter = DeadLetterFolder(path=f"{placement.dead_letter_root}/{settings.folder.path}")
    elif settings.dead_letter is not None:
        logstore = settings.dead_letter.logstore
        assert logstore is not None  # a rule of the CR
        dead_letter = DeadLetterLogstore(
            project=logstore.project or resource.spec.project, logstore=logstore.name
        )
    return OnFailure(
        policy=settings.policy.value,
        max_attempts=settings.max_attempts,
        max_consecutive=settings.max_consecutive,
        max_per_hour=settings.max_per_hour,
        dead_letter=dead_letter,
    )


def _log(resource: LogHubConsumerGroup, placement: Placement) -> LogSettings:
    log = resource.spec.worker.log
    file = log.file
    if file is None:
        return LogSettings(level=log.level.value, format=log.format.value)
    folder = None
    if file.volume_claim is not None:
        folder = "/".join(filter(None, (placement.log_root, file.path)))
    return LogSettings(
        level=log.level.value,
        format=log.format.value,
        file=LogFile(
            folder=folder,
            max_size_mib=file.max_size_mib,
            max_backups=file.max_backups,
            compress=file.compress,
        ),
    )
