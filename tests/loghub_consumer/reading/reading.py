"""Reads a range as the data source does."""

from typing import Any

from loghub_consumer.batch_plan import Range
from loghub_consumer.reading.shard_reader import ReadCount, read_ranges


def read(
    client: Any, logstore: str, shard_range: Range, *, latest_s: int | None = None
) -> tuple[list[dict[str, Any]], ReadCount]:
    """The rows, and the counts."""
    counts: list[ReadCount] = []
    batches = read_ranges(
        client, logstore, [shard_range], counted=lambda _, count: counts.append(count), latest_s=latest_s
    )
    return [row for batch in batches for row in batch.to_pylist()], counts[0]
