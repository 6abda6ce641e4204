"""Record batches in the compressions of producers."""

import gzip
import struct
from collections.abc import Callable, Sequence

import cramjam
import google_crc32c
import lz4.frame
import zstandard

from loghub_service.kafka.wire.batch_compression import BatchCompression
from loghub_service.kafka.wire.record_batch import HEADER_BYTES, Record
from tests.loghub_service.kafka.client_batches import build_batch

_SIZE_AT, _CHECKSUM_AT, _ATTRIBUTES_AT = 8, 17, 21
_PACK: dict[BatchCompression, Callable[[bytes], bytes]] = {
    BatchCompression.NONE: bytes,
    BatchCompression.GZIP: gzip.compress,
    BatchCompression.SNAPPY: lambda raw: bytes(cramjam.snappy.compress_raw(raw)),
    BatchCompression.LZ4: lz4.frame.compress,
    BatchCompression.ZSTD: zstandard.compress,
}


def packed(records: Sequence[Record], how: BatchCompression) -> bytes:
    plain = build_batch(records)
    batch = bytearray(plain[:HEADER_BYTES] + _PACK[how](plain[HEADER_BYTES:]))
    struct.pack_into(">i", batch, _SIZE_AT, len(batch) - 12)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, how)
    struct.pack_into(">I", batch, _CHECKSUM_AT, google_crc32c.value(bytes(batch[_ATTRIBUTES_AT:])))
    return bytes(batch)
