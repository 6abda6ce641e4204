"""The answer that refuses a command: each command whose answer is not SUCCESS has an error of its own
class."""

from msgspec import Struct

from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.wire.consumers import (
    CommandAck,
    CommandAckResponse,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
)
from loghub_service.pulsar.wire.producers import CommandSend, CommandSendError
from loghub_service.pulsar.wire.session import (
    CommandError,
    CommandTcClientConnectRequest,
    CommandTcClientConnectResponse,
)
from loghub_service.pulsar.wire.topics import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    LookupResult,
    PartitionsResult,
)


def refusal_of(command: Struct, error: RefusedCommand) -> Struct | None:
    """The answer that refuses this command; None if the client expects no answer."""
    code, message = error.code, str(error)
    match command:
        case CommandAck(request_id=None):
            return None
        case CommandAck(request_id=int(request), consumer_id=consumer):
            return CommandAckResponse(consumer_id=consumer, request_id=request, error=code, message=message)
        case CommandSend(producer_id=producer, sequence_id=sequence):
            return CommandSendError(producer_id=producer, sequence_id=sequence, error=code, message=message)
        case CommandLookupTopic(request_id=request):
            return CommandLookupTopicResponse(
                request_id=request, response=LookupResult.FAILED, error=code, message=message
            )
        case CommandPartitionedTopicMetadata(request_id=request):
            return CommandPartitionedTopicMetadataResponse(
                request_id=request, response=PartitionsResult.FAILED, error=code, message=message
            )
        case CommandGetSchema(request_id=request):
            return CommandGetSchemaResponse(request_id=request, error_code=code, error_message=message)
        case CommandGetOrCreateSchema(request_id=request):
            return CommandGetOrCreateSchemaResponse(
                request_id=request, error_code=code, error_message=message
            )
        case CommandConsumerStats(request_id=request):
            return CommandConsumerStatsResponse(request_id=request, error_code=code, error_message=message)
        case CommandTcClientConnectRequest(request_id=request):
            return CommandTcClientConnectResponse(request_id=request, error=code, message=message)
        case _:
            request_id = getattr(command, "request_id", None)
            return (
                None
                if request_id is None
                else CommandError(request_id=request_id, error=code, message=message)
            )
