"""A pipeline without Spark, a part of `loghub.contract.worker.WorkerConfig`.

The rules of that module for what may change between releases hold here, too.
"""

import hashlib
from typing import Literal

import msgspec

from loghub.domain.subscription import SubscriptionType
from loghub.wire import names


class RetryLogstore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The logstore, of the same project, and how long logs wait the first time, the second, and so on. After
    the last wait the failure policy settles them."""

    logstore: str
    delays_s: tuple[float, ...] = (10.0, 60.0, 600.0)


def retry_group(consumer_group: str, logstore: str, *, is_subscription: bool = False) -> str:
    """The consumer group that reads a retry logstore for the group, or the subscription, of this logstore.
    The groups of two logstores, and a group and a subscription of one logstore, may have one name and one
    retry logstore: neither may pass over logs that the other must read.

    A logstore's name has no capital letters, so two of them never have the same retry group.
    """
    link = "-OF-" if is_subscription else "-FROM-"
    name = f"{consumer_group}{link}{logstore}"
    if names.CONSUMER_GROUP.allows(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{consumer_group[:32].replace('.', '-')}{link}{digest}"


class ProcessorSubscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The workers are consumers of a subscription, whose name is the consumer group's, in place of members of
    a group. The operator creates it; a worker only joins. `priority` means the same as in
    `loghub_consumer.settings.SubscriptionOptions`."""

    type: SubscriptionType
    priority: int = 0


class ProcessorPipeline(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="processor"
):
    """A class derived from `loghub_consumer.Processor`, or a function that returns such an object. It runs
    without Spark, in processes of the worker, and the sink is `NoSink`. `files` and `folder` are as in
    `loghub.contract.worker.PythonPipeline`. A batch is complete with `max_logs` logs or `max_bytes` bytes, or
    `max_wait_s` after its first log group arrived.
    """

    factory: str  # module:name
    files: dict[str, str] = {}
    folder: str | None = None
    listener: str | None = None  # module:name
    processes: int = 1  # 0: one for each core
    load_timeout_s: float = 120.0  # for a process to import the code, such as a model
    max_logs: int | None = None
    max_bytes: int = 4 << 20
    max_wait_s: float = 0.0
    # Each setting means the same as in `loghub_consumer.settings.ConsumerSettings`.
    acknowledge: Literal["batch", "log"] = "batch"
    redelivery_delay_s: float = 1.0
    max_redelivery_delay_s: float = 60.0
    ack_timeout_s: float | None = None
    max_ack_timeout_s: float | None = None
    max_unacknowledged: int = 10_000
    retry: RetryLogstore | None = None
    subscription: ProcessorSubscription | None = None
