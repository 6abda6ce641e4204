"""Writes rows to a logstore where they are: a Python process of Spark forms log groups of its own and sends
them.

The worker's sink and the data source share it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from loghub.client.port import LogHub
from loghub.wire.loggroup import encode
from loghub_consumer.log_groups import FormedGroup, LogGroupBuilder
from loghub_consumer.log_service import put_log_group


@dataclass(slots=True)
class Written:
    """What was written."""

    rows: int = 0
    log_groups: int = 0
    bytes: int = 0


def put_rows(
    client: LogHub,
    logstore: str,
    batches: Iterable[pa.RecordBatch],
    builder_for: Callable[[list[str]], LogGroupBuilder],
) -> Written:
    """Write all rows, in log groups of bounded size. `builder_for` gets the names of the columns."""
    written = Written()

    def put(groups: Iterable[FormedGroup]) -> None:
        for formed in groups:
            body = encode(formed.group)
            put_log_group(client, logstore, body, hash_key=formed.hash_key)
            written.log_groups += 1
            written.bytes += len(body)

    builder: LogGroupBuilder | None = None
    for batch in batches:
        builder = builder or builder_for(batch.schema.names)
        put(builder.add(batch))
        written.rows += batch.num_rows
    if builder is not None:
        put(builder.finish())
    return written
