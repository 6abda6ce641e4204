"""What a Python program imports to consume a logstore (docs/processor.md).

A `Processor` gets the logs of one shard, and a `Consumer` shares the shards of a logstore with the other
consumers of its group. Neither needs Spark, Java or Arrow, and importing this module imports none of them.

A name is loaded when it is first used. Each process of Python that Spark starts imports modules of this
package and needs none of the names, which together cost it 0.13 s of CPU time.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of `_MODULES`
    from loghub.client.credentials_dir import read_key
    from loghub.client.port import Credentials
    from loghub.contract.processor import RetryLogstore
    from loghub.contract.worker import DeadLetterFolder, DeadLetterLogstore, OnFailure
    from loghub.domain.subscription import SubscriptionType
    from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
    from loghub_consumer.batch import LogBatch, LogGroups, LogPlace, ReceivedLog, ReceivedLogGroup
    from loghub_consumer.checkpoint_store import (
        CheckpointStore,
        FencedError,
        Owned,
        SqlCheckpointStore,
        StoredShard,
    )
    from loghub_consumer.consumer import Consumer, ConsumerError, ShardLag
    from loghub_consumer.failure.outage import UnavailableError
    from loghub_consumer.log_table import LogTable, read
    from loghub_consumer.log_threads import fan_out
    from loghub_consumer.multi_logstore import MultiLogstoreConsumer, MultiLogstoreListener
    from loghub_consumer.processor import (
        Listener,
        NotAssignedError,
        Processor,
        ProcessorFactory,
        ShardControl,
        ShardLostError,
        Tracker,
    )
    from loghub_consumer.settings import ConsumerSettings, SubscriptionOptions

__all__ = [
    "CheckpointStore",
    "Consumer",
    "ConsumerError",
    "ConsumerSettings",
    "Credentials",
    "DeadLetterFolder",
    "DeadLetterLogstore",
    "EndpointUnreachable",
    "FencedError",
    "Listener",
    "LogBatch",
    "LogGroups",
    "LogHubError",
    "LogHubException",
    "LogPlace",
    "LogTable",
    "MalformedCursor",
    "MultiLogstoreConsumer",
    "MultiLogstoreListener",
    "NotAssignedError",
    "OnFailure",
    "Owned",
    "Processor",
    "ProcessorFactory",
    "ReceivedLog",
    "ReceivedLogGroup",
    "RetryLogstore",
    "ShardControl",
    "ShardLag",
    "ShardLostError",
    "SqlCheckpointStore",
    "StoredShard",
    "SubscriptionOptions",
    "SubscriptionType",
    "Tracker",
    "UnavailableError",
    "fan_out",
    "read",
    "read_key",
]

_MODULES = {
    "CheckpointStore": "loghub_consumer.checkpoint_store",
    "Consumer": "loghub_consumer.consumer",
    "ConsumerError": "loghub_consumer.consumer",
    "ConsumerSettings": "loghub_consumer.settings",
    "Credentials": "loghub.client.port",
    "DeadLetterFolder": "loghub.contract.worker",
    "DeadLetterLogstore": "loghub.contract.worker",
    "EndpointUnreachable": "loghub.wire.errors",
    "FencedError": "loghub_consumer.checkpoint_store",
    "Listener": "loghub_consumer.processor",
    "LogBatch": "loghub_consumer.batch",
    "LogGroups": "loghub_consumer.batch",
    "LogHubError": "loghub.wire.errors",
    "LogHubException": "loghub.wire.errors",
    "LogPlace": "loghub_consumer.batch",
    "LogTable": "loghub_consumer.log_table",
    "MalformedCursor": "loghub.wire.errors",
    "MultiLogstoreConsumer": "loghub_consumer.multi_logstore",
    "MultiLogstoreListener": "loghub_consumer.multi_logstore",
    "NotAssignedError": "loghub_consumer.processor",
    "OnFailure": "loghub.contract.worker",
    "Owned": "loghub_consumer.checkpoint_store",
    "Processor": "loghub_consumer.processor",
    "ProcessorFactory": "loghub_consumer.processor",
    "ReceivedLog": "loghub_consumer.batch",
    "ReceivedLogGroup": "loghub_consumer.batch",
    "RetryLogstore": "loghub.contract.processor",
    "ShardControl": "loghub_consumer.processor",
    "ShardLag": "loghub_consumer.consumer",
    "ShardLostError": "loghub_consumer.processor",
    "SqlCheckpointStore": "loghub_consumer.checkpoint_store",
    "StoredShard": "loghub_consumer.checkpoint_store",
    "SubscriptionOptions": "loghub_consumer.settings",
    "SubscriptionType": "loghub.domain.subscription",
    "Tracker": "loghub_consumer.processor",
    "UnavailableError": "loghub_consumer.failure.outage",
    "fan_out": "loghub_consumer.log_threads",
    "read": "loghub_consumer.log_table",
    "read_key": "loghub.client.credentials_dir",
}

if not TYPE_CHECKING:  # or a type checker would believe in every name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
