"""GET_SCHEMA and GET_OR_CREATE_SCHEMA: schemas are stored for each topic, and their content is not examined.

A version is a number from 0 on, as eight bytes with the highest first, and empty if there is no schema.
Whether a new schema is compatible with the schema before it is not checked.
"""

from loghub_service.connections.service_ports import Access
from loghub_service.pulsar.broker.connection import Complete
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.session import PulsarSession
from loghub_service.pulsar.broker.store import PulsarTopic
from loghub_service.pulsar.wire.codec import decode, encode
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.topics import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
)
from loghub_service.pulsar.wire.values import NO_SCHEMA, Schema

_VERSION_BYTES = 8  # Pulsar's brokers write a version as a 64-bit number


def version_bytes(version: int | None) -> bytes:
    """A version as it is on the wire."""
    return b"" if version is None else version.to_bytes(_VERSION_BYTES, "big")


async def version_of(topic: PulsarTopic, schema: Schema) -> int | None:
    """The version of a schema, which is stored if it is new; None if messages are bytes without one. Raises
    RefusedCommand."""
    if schema.type == NO_SCHEMA:
        return None
    return await topic.declare_schema(encode(schema))


async def get_schema(session: PulsarSession, command: CommandGetSchema) -> Complete | None:
    """Answer with a schema of a topic, if the login may read or write the topic."""
    if not session.login.may(Access.WRITE):
        session.check_may(Access.READ)
    topic = session.topic(command.topic).topic
    version = int.from_bytes(command.schema_version, "big") if command.schema_version else None
    found = topic.schema(version)
    if found is None:
        # The code by which clients know that there is none.
        raise RefusedCommand(ServerError.TOPIC_NOT_FOUND, f"topic {topic.name} has no such schema")
    number, schema = found
    session.send(
        CommandGetSchemaResponse(
            request_id=command.request_id,
            schema=decode(Schema, schema),
            schema_version=version_bytes(number),
        )
    )
    return None


async def get_or_create_schema(session: PulsarSession, command: CommandGetOrCreateSchema) -> Complete | None:
    session.check_may(Access.WRITE)
    topic = session.topic(command.topic).topic
    return _declared(session, topic, command)


async def _declared(session: PulsarSession, topic: PulsarTopic, command: CommandGetOrCreateSchema) -> None:
    version = version_bytes(await version_of(topic, command.schema))
    session.send(CommandGetOrCreateSchemaResponse(request_id=command.request_id, schema_version=version))
