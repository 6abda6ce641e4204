"""The error codes against kafka-python's list, and what members write for each other against its coders."""

import kafka.errors
import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.groups import decode_assignment

THEIRS = {
    error.errno: error
    for error in vars(kafka.errors).values()
    if isinstance(error, type) and issubclass(error, kafka.errors.BrokerResponseError)
}
# Where kafka-python keeps an older name, or has one of its own.
OLDER_NAMES = {
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
    "INVALID_REPLICA_ASSIGNMENT": "INVALID_REPLICATION_ASSIGNMENT",
}


@pytest.mark.parametrize(
    "code", [code for code in ErrorCode if code is not ErrorCode.NONE], ids=lambda c: c.name
)
def test_a_code_has_the_number_and_the_kind_that_clients_know(code: ErrorCode) -> None:
    theirs = THEIRS[int(code)]
    assert theirs.message in (code.name, OLDER_NAMES.get(code.name))
    # The protocol's own list has it as retriable: the bytes may have been damaged on their way.
    assert code.retriable == (theirs.retriable or code is ErrorCode.CORRUPT_MESSAGE)
    assert code.meaning.endswith(".")


def test_a_code_is_a_number() -> None:
    assert ErrorCode(22) is ErrorCode.ILLEGAL_GENERATION
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.UNKNOWN_MEMBER_ID.retriable


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_assignments_of_members_are_read(version: int) -> None:
    """Newer versions append fields, which are ignored."""
    topic = ConsumerProtocolAssignment.TopicPartition
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[topic(topic="a", partitions=[3, 4])], user_data=None, version=version
    )
    assigned = decode_assignment(assignment.encode(header=True))
    assert [(each.topic, each.partitions) for each in assigned.assigned_partitions] == [("a", (3, 4))]
