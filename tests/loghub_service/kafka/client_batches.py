"""Record batches as a producer makes them; the broker makes those of log groups."""

from collections.abc import Iterable, Sequence

from loghub_service.kafka.wire.errors import UnencodableValue
from loghub_service.kafka.wire.record_batch import (
    MAX_RECORDS,
    TABLE_SIZE,
    Record,
    finish_batch,
    zigzag,
    zigzag_table,
)


def build_batch(records: Iterable[Record], *, base_offset: int = 0) -> bytes:
    """An uncompressed batch of at least one record, without a producer.

    Raises UnencodableValue for no records, more than MAX_RECORDS, or a time that is not of 64 bits.
    """
    parts: list[bytes] = [b""]
    table = zigzag_table()
    append = parts.append
    base = top = count = 0
    for count, (key, value, headers, timestamp) in enumerate(records, 1):
        if count == 1:
            base = top = timestamp
        elif timestamp > top:
            top = timestamp
        if count > MAX_RECORDS:
            raise UnencodableValue(f"more than {MAX_RECORDS} records in one batch")
        delta = timestamp - base
        body = b"".join(
            (
                b"\0",
                table[delta] if 0 <= delta < TABLE_SIZE else zigzag(delta),
                table[count - 1],
                b"\1" if key is None else _prefixed(key),
                b"\1" if value is None else _prefixed(value),
                _headers(headers) if headers else b"\0",
            )
        )
        size = len(body)
        append(table[size] if size < TABLE_SIZE else zigzag(size))
        append(body)
    return finish_batch(parts, base_offset=base_offset, times=(base, top), count=count)


def _prefixed(content: bytes) -> bytes:
    size = len(content)
    return (zigzag_table()[size] if size < TABLE_SIZE else zigzag(size)) + content


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [zigzag(len(headers))]
    for name, value in headers:
        parts += (_prefixed(name.encode()), b"\1" if value is None else _prefixed(value))
    return b"".join(parts)
