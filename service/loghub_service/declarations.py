"""What Pulsar's producers have declared of a topic: the schemas of its messages, and the epochs of those that
were the only ones.

The service stores schemas and gives them back; it does not look into messages. A schema has the number of
those before it as its version, and one that is declared again keeps its version.
"""

import asyncio
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from loghub_service.facts import ProducerEpochSaved, SchemaSaved

Submit = Callable[..., "asyncio.Future[object]"]
MAX_SCHEMAS = 1000  # of a logstore
# Of a schema, and of all of a logstore: they stay in memory. An Avro schema has some KiB.
MAX_SCHEMA_BYTES, MAX_BYTES = 256 << 10, 4 << 20


class TooManySchemas(Exception):  # noqa: N818 - says what
    """The schema is not stored; the message is for people."""


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema as it was declared, and when it is durable."""

    schema: bytes
    durable: "asyncio.Future[object]"


class Declarations:
    """Of all logstores, by their ids; ``existing`` has those that are there. Used on the event loop only."""

    def __init__(self, submit: Submit, existing: Container[int]) -> None:
        self._submit = submit
        self._existing = existing
        self._schemas: dict[int, list[DeclaredSchema]] = {}
        self._epochs: dict[tuple[int, int], int] = {}

    def restore(self, schemas: Iterable[SchemaSaved], epochs: Iterable[ProducerEpochSaved]) -> None:
        """Take back what was persisted, the schemas in the order of their versions."""
        durable: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        durable.set_result(None)
        for saved in schemas:
            self._schemas.setdefault(saved.logstore, []).append(DeclaredSchema(saved.schema, durable))
        self._epochs.update({(each.logstore, each.partition): each.epoch for each in epochs})

    def schema(self, logstore: int, version: int | None = None) -> tuple[int, bytes] | None:
        """A schema with its version, the newest one without a version; None if there is none."""
        schemas = self._schemas.get(logstore, [])
        number = len(schemas) - 1 if version is None else version
        return (number, schemas[number].schema) if 0 <= number < len(schemas) else None

    async def declare(self, logstore: int, schema: bytes) -> int:
        """The version of a schema; it is durable on return. Raises TooManySchemas, and OSError."""
        schemas = self._schemas.get(logstore, [])
        for version, known in enumerate(schemas):
            if known.schema == schema:
                await asyncio.shield(known.durable)
                return version
        if len(schema) > MAX_SCHEMA_BYTES:
            raise TooManySchemas(f"a schema of {len(schema)} bytes; at most {MAX_SCHEMA_BYTES} are accepted")
        size = len(schema) + sum(len(known.schema) for known in schemas)
        if len(schemas) >= MAX_SCHEMAS or size > MAX_BYTES:
            raise TooManySchemas(
                f"the topic has {len(schemas)} schemas; at most {MAX_SCHEMAS} with {MAX_BYTES} bytes are kept"
            )
        self._forget_deleted()
        version = len(schemas)
        durable = self._submit(SchemaSaved(logstore=logstore, version=version, schema=schema))
        self._schemas.setdefault(logstore, schemas).append(DeclaredSchema(schema, durable))
        await asyncio.shield(durable)
        return version

    def epoch(self, logstore: int, partition: int) -> int | None:
        """The topic epoch of the last producer that was the only one; None if there was none."""
        return self._epochs.get((logstore, partition))

    def save_epoch(self, logstore: int, partition: int, epoch: int) -> "asyncio.Future[object]":
        """Keep an epoch; the future is done when it is durable."""
        self._forget_deleted()
        self._epochs[logstore, partition] = epoch
        return self._submit(ProducerEpochSaved(logstore=logstore, partition=partition, epoch=epoch))

    def _forget_deleted(self) -> None:
        """Their rows have gone with them."""
        self._schemas = {key: value for key, value in self._schemas.items() if key in self._existing}
        self._epochs = {key: value for key, value in self._epochs.items() if key[0] in self._existing}
