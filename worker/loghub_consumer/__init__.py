"""What a Python program imports to consume a logstore (docs/processor.md).

A `Processor` gets the logs of one shard, and a `Consumer` shares the shards of a logstore with the other
consumers of its group. Neither needs Spark, Java or Arrow, and importing this module imports none of them.
"""

from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials
from loghub.contract.processor import RetryLogstore
from loghub.contract.worker import DeadLetterFolder, DeadLetterLogstore, OnFailure
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
from loghub_consumer.fan_out import fan_out
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
from loghub_consumer.settings import ConsumerSettings

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
    "Tracker",
    "UnavailableError",
    "fan_out",
    "read_key",
]
