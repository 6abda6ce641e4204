"""The contract between a worker process and the program that starts it: environment, settings and files.

The operator (in a cluster) and `loghub up` (local processes) start the same worker. Both write the
settings in this form, `loghub_operator.resources.worker_config` for the operator, and
`loghub_worker.__main__` reads them. The worker reports back through files.

Environment of a worker process:

``LOGHUB_WORKER_CONFIG``    path of a JSON file that contains a `WorkerConfig`
``LOGHUB_CONSUMER``         the consumer name: the pod's name
``LOGHUB_CREDENTIALS_DIR``  directory with the files ``accessKeyId``, ``accessKeySecret`` and, if
                            given, ``securityToken`` and ``region``; read again when they change
``LOGHUB_CLIENT``           client of the log service: ``http`` (our own, the default) or ``sdk`` (the
                            vendor's SDK, which only the image ``worker-sdk`` has)
``LOGHUB_SINK_CREDENTIALS_DIR``  directory with the credentials of a sink that is not the log service,
                            one file for each; may be absent. Read again when they change
``LOGHUB_DRAIN_FILE``       path of a file; once its content is `DRAIN_REQUESTED` the worker drains: it
                            checkpoints, releases every shard, leaves the group, and waits to be stopped. With
                            no file or any other content it keeps working. In a pod this is a downwardAPI file
                            of the annotation `DRAIN_ANNOTATION`
``LOGHUB_STATE_DIR``        writable scratch directory for Spark's own checkpoints and the exchange files
                            between the worker's processes; may be empty at every start. If it outlives a
                            process that ended during a batch, the next one with the same settings reads
                            that batch in smaller parts. A stateful pipeline has its state here
``LOGHUB_STATUS_FILE``      path of a JSON `WorkerStatus` that the worker replaces about once a second
``LOGHUB_METRICS_ADDRESS``  ``host:port`` for ``/metrics``, ``/healthz``, ``/readyz`` and ``/status``; if
                            absent, they are not served. A worker is ready while it works on shards, which
                            includes draining. A worker that has a drain request and is not ready holds no
                            shard and saves no further checkpoint. ``/status`` is the `WorkerStatus` of at
                            most `STATUS_FRESH_S` ago, without ``message``, which may quote a log, or 503
``LOGHUB_TERMINATION_LOG``  path for ``Reason: message`` of a fatal error (a pod's terminationMessagePath)
``LOGHUB_CLASS_ARCHIVE``    path of a class-data archive for Spark's JVM; the worker's image contains it

Operator and worker may be of different releases, because users pin or build images of their own. So a release
may add a setting or a field of the status only with a default, which leaves what the workers do unchanged.
Defaults are not written: a new setting that nobody uses changes no byte, and so restarts no worker. A worker
ignores settings that it does not know, and names them in its status, since they are in use. Anything else,
such as a setting whose meaning changes, needs another `CONTRACT_VERSION`, whose settings a worker refuses.

The class of an error: what kind it is, without a word of the logs.

The message of an error may quote a log. It is in the worker's own log and status; the object's status, which
others may read, has the class only: a condition of Spark such as ``CAST_INVALID_INPUT``, or the name of an
exception that ends in ``Error`` or ``Exception``. Pure.

The contract includes the settings of executors that Spark makes as pods, the settings of a worker's own log,
and what a worker reports of the state of a stateful pipeline.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any, Literal, TypeVar

import msgspec

from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import Sink

LONGEST = 64  # the object's status holds one class for each failing shard, and names of errors are shorter
_CLASS = r"[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*"
_NAME = r"[A-Za-z_]\w*(?:Error|Exception)"
# Whose error it is may come first, as in `pipeline:transform: ValueError: ...`.
_LEADING = re.compile(rf"(?:[\w.:]+: )?(?:\[({_CLASS})\] |(?:\w+\.)*({_NAME}):)")


def error_class(message: str) -> str:
    """The class at the begin of a message; "" if it begins with no class."""
    match = _LEADING.match(message)
    name = (match[1] or match[2]) if match is not None else ""
    return name if len(name) <= LONGEST else ""


def is_error_class(text: str) -> bool:
    """Whether a text from elsewhere is a class and nothing else, or empty."""
    return len(text) <= LONGEST and re.fullmatch(rf"|{_CLASS}|{_NAME}", text) is not None


class ExecutorSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The executors of one worker, whose number is the worker's cores divided by `cores`."""

    cores: int  # tasks at a time in one executor
    memory: str  # heap of the JVM, such as 512m
    memory_overhead: str  # for all else in the container, such as its Python processes
    cpu: str  # request of the container, a quantity of Kubernetes
    pod: dict[str, Any]  # a Pod without name and namespace, whose only container is `CONTAINER`


CONTAINER = "executor"
# A volume of this name is where Spark spills in a pod; it would otherwise add one without a limit.
SCRATCH_VOLUME = "spark-local-dir-1"
LABEL_OF_WORKER = "loghub.dev/worker"  # the worker's pod
# Settings of Spark that these settings replace.
REPLACED = (
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
)
REPLACED_PREFIX = "spark.kubernetes."


def is_replaced(setting: str) -> bool:
    """Whether executors in pods may not have this setting of Spark."""
    return setting in REPLACED or setting.startswith(REPLACED_PREFIX)


class IncompleteState(msgspec.Struct, frozen=True, kw_only=True):
    """A held shard whose earlier logs are missing from the state of a stateful pipeline."""

    shard: int
    cursor: str  # from which the state has its logs
    why: str  # Elsewhere, Reset, Changed or Unusable


class KeptState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stateful pipeline after the last batch, and what Spark has dropped as late."""

    rows: int
    bytes: int  # in memory
    watermark_s: float | None  # unix seconds, of the last batch; None before there is one
    late_rows: int  # since the state was first kept
    late_age_s: float | None  # since the last late row was dropped; None: no row was late
    is_ahead: bool = False  # the watermark lies after the receipt of the logs that were read last


LogLevel = Literal["Debug", "Info", "Warn", "Error"]
LogFormat = Literal["Text", "JSON"]


class LogFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in addition to standard error: ``<consumer>.log`` in the folder, and its backups
    ``<consumer>.log.1``, ``.2`` .., the latest first, with ``.gz`` if they are compressed."""

    folder: str | None = None  # absolute; None: ``log`` in the worker's state directory
    max_size_mib: int = 10  # the file is rotated before it exceeds this
    max_backups: int = 10  # older ones are removed
    compress: bool = False


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker logs, how, and where besides standard error."""

    level: LogLevel = "Info"  # less severe messages are left out
    format: LogFormat = "Text"
    file: LogFile | None = None


CONTRACT_VERSION = 1  # rises with each change that an older worker would misread
DRAIN_ANNOTATION = "loghub.dev/drain"
DRAIN_REQUESTED = "true"
DRAIN_NOT_REQUESTED = "false"

ENV_CONFIG = "LOGHUB_WORKER_CONFIG"
ENV_CONSUMER = "LOGHUB_CONSUMER"
ENV_CREDENTIALS_DIR = "LOGHUB_CREDENTIALS_DIR"
ENV_CLIENT = "LOGHUB_CLIENT"
ENV_SINK_CREDENTIALS_DIR = "LOGHUB_SINK_CREDENTIALS_DIR"
ENV_DRAIN_FILE = "LOGHUB_DRAIN_FILE"
ENV_STATE_DIR = "LOGHUB_STATE_DIR"
ENV_STATUS_FILE = "LOGHUB_STATUS_FILE"
ENV_METRICS_ADDRESS = "LOGHUB_METRICS_ADDRESS"
ENV_TERMINATION_LOG = "LOGHUB_TERMINATION_LOG"
ENV_CLASS_ARCHIVE = "LOGHUB_CLASS_ARCHIVE"

STATUS_PATH = "/status"
STATUS_FRESH_S = 5.0  # a status is replaced about once a second; an older one says little about the shards

ACCESS_KEY_ID_FILE = "accessKeyId"
ACCESS_KEY_SECRET_FILE = "accessKeySecret"  # noqa: S105 - a file's name, not a secret
SECURITY_TOKEN_FILE = "securityToken"  # noqa: S105 - a file's name, not a secret
REGION_FILE = "region"


class UnsupportedContractError(Exception):
    """The settings have another contract version than this release."""


class SqlPipeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="sql"):
    """One query of Spark SQL over the view `logs`; the columns of the result are written to the sink."""

    text: str


class PythonPipeline(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="python"
):
    """A function from the DataFrame of the logs to the DataFrame of the rows for the sink.

    Its module is one of `files`, or in `folder`, or, without either, in the worker's image. The files
    are part of the settings, so that a restarted worker runs the same code.
    """

    function: str  # module:function
    files: dict[str, str] = {}  # name -> text of a Python file
    folder: str | None = None  # absolute


class CopyPipeline(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="copy"
):
    """Each log group is copied unchanged, byte by byte. The sink is a `LogstoreSink`."""


Pipeline = SqlPipeline | PythonPipeline | ProcessorPipeline | CopyPipeline


class DeadLetterLogstore(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="logstore"
):
    """Another logstore of the same endpoint; it gets each log group as it was read, with tags added."""

    project: str
    logstore: str


class DeadLetterFolder(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="folder"
):
    """A folder that gets one JSON file for each log group."""

    path: str  # absolute


FailurePolicyName = Literal["Retry", "DeadLetter", "Skip", "Stop"]


class OnFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens to a log group that the pipeline or the sink rejects. Invariant: `dead_letter` is set if
    and only if the policy is ``DeadLetter``. With the policy ``Retry`` the other fields have no effect."""

    policy: FailurePolicyName = "Retry"
    max_attempts: int = 5  # of one log group alone
    max_consecutive: int = 10  # log groups of a shard, settled one directly after another
    max_per_hour: int = 100  # log groups of a shard
    dead_letter: DeadLetterLogstore | DeadLetterFolder | None = None


Engine = Literal["Auto", "Spark"]
LOCAL_MASTER = "local[*]"  # in the worker's own pod, on `WorkerConfig.cores`
# In pods that Spark makes next to the worker's. No other address: the worker sends its token there.
KUBERNETES = "k8s://https://kubernetes.default.svc"


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's settings. They are equal for all workers of a group, so that no worker imposes its own.

    A setting that equals its default is not written: an unused setting changes no worker's file.
    """

    contract_version: int  # `CONTRACT_VERSION`
    endpoint: str  # URL of the SLS endpoint without the project, e.g. http://127.0.0.1:8080
    project: str
    logstore: str
    consumer_group: str
    heartbeat_interval_s: float
    timeout_s: int  # the group's: a consumer that is silent for this long loses its shards
    start_position: Literal["begin", "end"] | int  # int: unix seconds; used where no checkpoint exists
    # Later shards, without a checkpoint, begin at their own first log. None: every shard counts as initial.
    last_initial_shard: int | None = None
    fetch_interval_s: float  # how often the end of a held shard is requested
    max_log_groups: int  # per shard and micro-batch
    max_bytes: int  # approximate limit per shard and micro-batch; at least one log group is read
    checkpoint_interval_s: float  # least time between checkpoints of a shard; 0: after each micro-batch
    trigger_interval_s: float  # from the start of a micro-batch to the next, unless log groups are waiting
    pipeline: Pipeline
    per_batch: bool = False  # whether the pipeline may compute results of each micro-batch, such as GROUP BY
    engine: Engine = "Auto"  # what computes the rows: Arrow where that gives what Spark does, or always Spark
    stateful: bool = False  # whether the pipeline keeps state across micro-batches, in the state directory
    reset: str = ""  # the last reset of checkpoints, if stateful: the state before it is of no use
    sink: Sink
    cores: int  # Spark local[cores], or of a cluster
    spark_master: str = LOCAL_MASTER  # or spark://host:port, with more of them after commas, or `KUBERNETES`
    executors: ExecutorSettings | None = None  # if and only if `spark_master` is `KUBERNETES`
    spark_memory: str | None  # heap of Spark's JVM, such as 512m; None: the worker's default
    spark_conf: dict[str, str]  # without settings for which `is_workers_own` holds
    drain_timeout_s: float  # how long a drain may take, after SIGTERM or a drain request
    batch_timeout_s: float = 600.0  # a micro-batch that takes longer is cancelled
    on_failure: OnFailure = OnFailure()
    max_logs: int = 500_000  # approximate limit of a micro-batch, over all shards of a worker
    log: LogSettings = LogSettings()


T = TypeVar("T", bound=msgspec.Struct)


class _Version(msgspec.Struct):
    contract_version: int


def encode_settings(config: WorkerConfig) -> bytes:
    """The file that a worker reads; equal settings give equal bytes."""
    return msgspec.json.encode(_with_defaults(config), order="sorted")


@cache
def _fields(settings: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Kept, because each call evaluates the annotations again, and an operator encodes in each round."""
    return msgspec.structs.fields(settings)


def _with_defaults(settings: T) -> T:
    """The same settings, in which a value that equals its default is the default object itself, because the
    encoder compares by identity."""
    changes: dict[str, Any] = {}
    for field in _fields(type(settings)):
        value = getattr(settings, field.name)
        if value == field.default:
            changes[field.name] = field.default
        elif isinstance(value, msgspec.Struct):
            changes[field.name] = _with_defaults(value)
    return msgspec.structs.replace(settings, **changes)


def decode_settings(file: bytes) -> tuple[WorkerConfig, tuple[str, ...]]:
    """The settings, and the names in the file that this release does not know, such as ``sink.compression``.

    Raises `UnsupportedContractError`, and `msgspec.MsgspecError` for a missing or an invalid value.
    """
    version = msgspec.json.decode(file, type=_Version).contract_version
    if version != CONTRACT_VERSION:
        raise UnsupportedContractError(
            f"the settings are of worker contract {version}, and this worker implements contract "
            f"{CONTRACT_VERSION}; use a worker image of the operator's release"
        )
    config = msgspec.json.decode(file, type=WorkerConfig)
    return config, tuple(sorted(_unknown(msgspec.json.decode(file), config)))


def _unknown(written: dict[str, Any], read: msgspec.Struct) -> Iterator[str]:
    field_names = {*read.__struct_fields__, read.__struct_config__.tag_field}
    for name, value in written.items():
        if name not in field_names:
            yield name
        elif isinstance(part := getattr(read, name, None), msgspec.Struct):
            yield from (f"{name}.{inner}" for inner in _unknown(value, part))


def first_position(
    shard: int, start_position: Literal["begin", "end"] | int, *, last_initial_shard: int | None
) -> Literal["begin", "end"] | int:
    """Where a shard without a checkpoint begins; the arguments are as in `WorkerConfig`."""
    is_initial = last_initial_shard is None or shard <= last_initial_shard
    return start_position if is_initial else "begin"


SPARK_MASTER = "spark.master"  # set by `spark_master` and `cores`
SPARK_MEMORY = "spark.driver.memory"  # set by `spark_memory`
# The worker depends on these: one Python for all processes, loopback or the address that executors reach, the
# log of its last batches.
SPARK_OWN = (
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.pyspark.driver.python",
    "spark.pyspark.python",
    "spark.sql.streaming.minBatchesToRetain",
    "spark.submit.deployMode",
)
SPARK_OWN_PREFIX = "spark.ui."


def is_workers_own(setting: str) -> bool:
    """Whether this setting of Spark is not allowed in ``spark_conf``."""
    return setting in (SPARK_MASTER, SPARK_MEMORY, *SPARK_OWN) or setting.startswith(SPARK_OWN_PREFIX)


MAX_REASON = 64  # longer than any reason; the status of a worker of another release cannot fill an object


def parse_termination_message(text: str) -> tuple[str, str] | None:
    """The reason and the message of ``Reason: message``; None if the text is anything else."""
    reason, colon, message = text.strip().partition(":")
    if colon and reason.isalnum() and len(reason) <= MAX_REASON:
        return reason, message.strip()
    return None


class WorkerReason(StrEnum):
    """What a worker itself reports. A code of the log service that has no reason here is shown as it is. For
    the first group the worker exits and is restarted; for the second it retries.

    INVALID_PIPELINE: the query or the function cannot be used, or not with this sink; the message has Spark's
    error, or the last line of the traceback with its place in the user's file. PIPELINE_FAILED: the pipeline
    or the sink rejects some logs; pipeline.onFailure says what happens to them, and condition ShardFailing
    where they are. The message has the first error and its place. BATCH_TIMED_OUT: a micro-batch took longer
    than pipeline.batchTimeoutSeconds. It is cancelled and divided; if it cannot be cancelled, the worker
    gives up its shards and exits. WORKER_ENDED: an earlier process of this worker ended during the
    micro-batch, for example because memory ran out; smaller ones are tried. DEAD_LETTER_UNAVAILABLE: the dead
    letter cannot be written; the shard waits. INVALID_SINK: the sink's settings are invalid, or the query's
    columns do not fit its table; the message names them. SINK_UNAVAILABLE: the sink cannot be written, for
    example because the disk is full, permissions are missing, the volume has no hard links or the database
    does not answer; the worker retries for as long as it takes. STATE_UNAVAILABLE: the worker's own state
    directory cannot be written, for example because its volume is full; the worker retries. JAVA_MISSING: the
    worker's image, or this machine, has no Java. SPARK_MASTER_UNAVAILABLE: the master of spec.spark.master
    does not answer, is of another release of Spark, or has ended the worker's application; or the API server
    refuses to let the worker make pods. NO_EXECUTORS: no executor runs within a minute, or four if they are
    pods, because no core or not enough memory is free, a pod cannot start, or none reaches the worker; the
    message has what is known. EXECUTOR_LOST: executors ended during a micro-batch, perhaps because memory ran
    out; smaller ones are tried. SPARK_NOT_STARTED: Spark rejected its settings, see spark.conf.
    SPARK_DRIVER_EXITED: Spark's JVM exited, often because it ran out of memory; raise spark.memory.
    INTERNAL_ERROR: a defect in the worker; please report it. PYTHON_WORKER_TIMEOUT: Spark's Python processes
    do not start in time because the worker has too little CPU; raise worker.resources. ENDPOINT_UNREACHABLE:
    the endpoint does not answer. PROJECT_NOT_FOUND, LOGSTORE_NOT_FOUND, CONSUMER_GROUP_NOT_FOUND: the
    endpoint answers, and the project, logstore or group does not exist; the operator recreates the group.
    AUTHENTICATION_FAILED: the access key is missing or unknown, or lacks the permission. CLOCK_SKEWED: the
    clocks of the node and of the log service differ too much. UNSUPPORTED_SETTINGS: the settings are of
    another contract than the worker's image has, or have a value that the image does not know; use an
    image of the operator's release. POSITION_BEYOND_END: a shard ends before the position from which the
    worker would continue, because the log service has lost logs or was restored; see condition Degraded. The
    worker reads its other shards. PROCESSOR_FAILED: a method of the processor other than process raised an
    error, such as initialize; it is called again. PROCESS_ENDED: a process in which processors run was
    killed, often because memory ran out, or ended itself; it is started again, and its logs are processed
    again. Raise worker.resources, or lower processor.processes. SUBSCRIPTION_UNSUPPORTED: the endpoint is not
    the embedded service, which alone has subscriptions. SUBSCRIPTION_NOT_FOUND: the subscription does not
    exist; the operator creates it."""

    INVALID_PIPELINE = "InvalidPipeline"
    PIPELINE_FAILED = "PipelineFailed"
    BATCH_TIMED_OUT = "BatchTimedOut"
    WORKER_ENDED = "WorkerEnded"
    DEAD_LETTER_UNAVAILABLE = "DeadLetterUnavailable"
    INVALID_SINK = "InvalidSink"
    SINK_UNAVAILABLE = "SinkUnavailable"
    STATE_UNAVAILABLE = "StateUnavailable"
    JAVA_MISSING = "JavaMissing"
    SPARK_MASTER_UNAVAILABLE = "SparkMasterUnavailable"
    NO_EXECUTORS = "NoExecutors"
    EXECUTOR_LOST = "ExecutorLost"
    SPARK_NOT_STARTED = "SparkNotStarted"
    SPARK_DRIVER_EXITED = "SparkDriverExited"
    INTERNAL_ERROR = "InternalError"
    PYTHON_WORKER_TIMEOUT = "PythonWorkerTimeout"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    PROJECT_NOT_FOUND = "ProjectNotFound"
    LOGSTORE_NOT_FOUND = "LogstoreNotFound"
    CONSUMER_GROUP_NOT_FOUND = "ConsumerGroupNotFound"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    CLOCK_SKEWED = "ClockSkewed"
    UNSUPPORTED_SETTINGS = "UnsupportedSettings"
    POSITION_BEYOND_END = "PositionBeyondEnd"
    PROCESSOR_FAILED = "ProcessorFailed"
    PROCESS_ENDED = "ProcessEnded"
    SUBSCRIPTION_UNSUPPORTED = "SubscriptionUnsupported"
    SUBSCRIPTION_NOT_FOUND = "SubscriptionNotFound"


class ShardProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One held shard as its worker reports it."""

    shard: int
    cursor: str | None  # end of the last batch that the sink committed; None before the first
    checkpoint: str | None  # last checkpoint that the service accepted from this worker
    logs: int  # logs in committed batches since the shard was assigned to this worker
    lag_s: float | None  # age of the next log group to read; 0 at the end; None: not known
    draining: bool  # released after the running batch: an answer no longer lists it, or the worker shuts down
    beyond_end: int = 0  # log groups by which the position lies beyond the shard's end; usually 0
    sink_cursor: str | None = None  # where it continued by the sink's record, for want of a checkpoint


class FailingShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that waits at a log group, because batches with that log group alone fail."""

    shard: int
    cursor: str  # of the log group
    state: str  # retrying, settling, limited or stopped
    reason: str  # a `WorkerReason`
    attempts: int
    error: str = ""  # the class of the last error; "" if it has none


class SkippedLogGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The log groups of a shard that were skipped or dead-lettered within the last hour."""

    shard: int
    log_groups: int
    last_cursor: str  # of the last one
    dead_lettered: bool


WorkerPhaseName = Literal["starting", "running", "fenced", "draining", "left", "failed"]


class ProcessProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One of the processes in which a worker runs its processors."""

    number: int
    pid: int | None  # None: it does not run now
    starts: int
    shards: list[int]  # whose processors it runs
    message: str  # why the process ended last; "" if it never did


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own report, for the live view, the metrics and the operator."""

    consumer: str
    phase: str  # one of `WorkerPhaseName`, or one of another release
    reason: str  # a `WorkerReason`, "" without an error
    message: str
    rows_written: int  # since the process started; for a processor, the logs that it has read
    last_heartbeat_age_s: float | None
    shards: list[ShardProgress]
    written_at: float  # unix seconds
    batch_age_s: float | None = None  # of the running batch; None if none runs
    batch_hung_after_s: float = 630.0  # a batch of this age cannot be cancelled, and the worker ends itself
    failing: list[FailingShard] = []
    skipped: list[SkippedLogGroups] = []
    # The contract version that the worker implements; 0: a release that did not report it
    contract_version: int = 0
    ignored_settings: list[str] = []  # in its settings, and unknown to it
    incomplete: list[IncompleteState] = []
    state: KeptState | None = None  # of a stateful pipeline, once it has had a batch
    processes: list[ProcessProgress] = []  # of a worker whose pipeline is a processor
    engine: str = ""  # what computes the rows, Arrow or Spark; "" while that is not known
    why_spark: str = ""  # why not Arrow
