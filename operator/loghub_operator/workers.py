"""The settings of the workers of one consumer group.

What for: CR in, `WorkerConfig` out, the same for every worker and both executors; its
hash says whether a running worker has other settings. What it must not know: pods,
processes. Read next: `loghub.worker_contract`.
"""

import hashlib

import msgspec

from loghub.worker_contract import LogstoreSink, ParquetSink, Sink, WorkerConfig
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model import Site

DRAIN_TIMEOUT_S = 30
# After the drain has ended: the last heartbeat, the leave call and its retries.
AFTER_DRAIN_S = 15


def worker_config(resource: LogHubConsumerGroup, site: Site) -> WorkerConfig:
    """What each worker of this group is told."""
    spec = resource.spec
    return WorkerConfig(
        endpoint=site.endpoint,
        project=spec.project,
        logstore=spec.logstore,
        consumer_group=resource.group,
        order=spec.order,
        heartbeat_interval_s=float(spec.heartbeat_interval_seconds),
        timeout_s=spec.timeout_seconds,
        initial_position=spec.initial_position_or_time(),
        fetch_interval_s=float(spec.fetch.interval_seconds),
        max_log_groups=spec.fetch.max_log_groups,
        trigger_interval_s=float(spec.pipeline.trigger.interval_seconds),
        sql=spec.pipeline.sql or "",
        sink=_sink(resource, site),
        cores=spec.spark.cores,
        spark_conf=dict(spec.spark.conf),
        drain_timeout_s=float(DRAIN_TIMEOUT_S),
    )


def encode(config: WorkerConfig) -> bytes:
    """The file that a worker reads; equal settings are equal bytes."""
    return msgspec.json.encode(config, order="sorted")


def config_hash(config: WorkerConfig) -> str:
    """16 hex digits; stable over processes and releases with the same settings."""
    return hashlib.sha256(encode(config)).hexdigest()[:16]


def leave_bound_s(resource: LogHubConsumerGroup) -> float:
    """How long a worker that was told to leave is waited for.

    Its drain, then the group's timeout (after which its shards are free whatever became of
    it), then some for the calls.
    """
    return DRAIN_TIMEOUT_S + resource.spec.timeout_seconds + AFTER_DRAIN_S


def _sink(resource: LogHubConsumerGroup, site: Site) -> Sink:
    sink = resource.spec.pipeline.sink
    if sink.parquet is not None:
        return ParquetSink(path=f"{site.sink_root}/{sink.parquet.path}")
    assert sink.logstore is not None  # a rule of the CR
    return LogstoreSink(project=sink.logstore.project or resource.spec.project, logstore=sink.logstore.name)
