"""What a program imports that consumes a logstore in Python (docs/processor.md).

A `Processor` gets the logs of one shard, and a `Consumer` shares the shards of a logstore with the other
consumers of its group. Neither needs Spark or Java, and importing this module imports none.
"""

from loghub.extras import needs

with needs("consumer", "loghub_worker.api"):
    from loghub.client.credentials_dir import read_key
    from loghub.client.port import Credentials
    from loghub.processor_settings import RetryLogstore
    from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
    from loghub.worker_contract import DeadLetterFolder, DeadLetterLogstore, OnFailure
    from loghub_worker.consumer.batch import LogBatch, LogGroups
    from loghub_worker.consumer.checkpoint_store import (
        CheckpointStore,
        FencedError,
        Owned,
        SqlCheckpointStore,
        StoredShard,
    )
    from loghub_worker.consumer.consumer import Consumer
    from loghub_worker.consumer.consumer_error import ConsumerError
    from loghub_worker.consumer.fan_out import fan_out
    from loghub_worker.consumer.multi_logstore import MultiLogstoreConsumer, MultiLogstoreListener
    from loghub_worker.consumer.processor import (
        Listener,
        NotAssignedError,
        Processor,
        ProcessorFactory,
        ShardControl,
        ShardLostError,
        Tracker,
    )
    from loghub_worker.consumer.received_log import LogPlace, ReceivedLog, ReceivedLogGroup
    from loghub_worker.consumer.settings import ConsumerSettings
    from loghub_worker.consumer.shard_lag import ShardLag
    from loghub_worker.failure.outage import UnavailableError

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
