"""What a program imports that consumes a logstore in Python (docs/processor.md).

A `Processor` gets the logs of one shard, and a `Consumer` shares the shards of a logstore with the other
consumers of its group. Neither needs Spark or Java, and importing this module imports none.
"""

from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub_worker.consumer.batch import LogBatch, LogGroups, LogPlace, ReceivedLog, ReceivedLogGroup
from loghub_worker.consumer.consumer import Consumer, ConsumerError
from loghub_worker.consumer.processor import (
    Listener,
    NotAssignedError,
    Processor,
    ProcessorFactory,
    ShardLostError,
    Tracker,
)
from loghub_worker.consumer.settings import ConsumerSettings

__all__ = [
    "Consumer",
    "ConsumerError",
    "ConsumerSettings",
    "Credentials",
    "EndpointUnreachable",
    "Listener",
    "LogBatch",
    "LogGroups",
    "LogHubError",
    "LogHubException",
    "LogPlace",
    "MalformedCursor",
    "NotAssignedError",
    "Processor",
    "ProcessorFactory",
    "ReceivedLog",
    "ReceivedLogGroup",
    "ShardLostError",
    "Tracker",
    "read_key",
]
