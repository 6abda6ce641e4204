"""Compressed payloads, with the size that the producer claims as a bound.

Of the answers only those are compressed that are larger than a frame (`entries`).
"""

import cramjam

from loghub.wire.compression import Compression, decompress
from loghub.wire.errors import MalformedCompression, TooLarge
from loghub_service.pulsar.wire.errors import RefusedMessage, ServerError
from loghub_service.pulsar.wire.producers import CompressionType

# LZ4 and snappy are blocks without a header, the others a frame of zstd and a stream of zlib, as in PutLogs.
_SHARED = {
    CompressionType.LZ4: Compression.LZ4,
    CompressionType.ZLIB: Compression.DEFLATE,
    CompressionType.ZSTD: Compression.ZSTD,
}


def decompressed(payload: bytes, compression: int, *, size: int, max_bytes: int) -> bytes:
    """The payload as it is without compression, which has ``size`` bytes, as the producer says.

    Raises RefusedMessage if it has another size or more than ``max_bytes``, and if the codec is not known.
    """
    try:
        codec = CompressionType(compression)
    except ValueError as error:
        raise _refused(f"compression {compression} is not NONE, LZ4, ZLIB, ZSTD or SNAPPY") from error
    size = len(payload) if codec is CompressionType.NONE else size
    if size > max_bytes:
        raise _refused(f"{size} bytes without compression; at most {max_bytes} are accepted in one entry")
    if codec is CompressionType.NONE:
        return payload
    try:
        if codec is CompressionType.SNAPPY:
            return _snappy(payload, size)
        return decompress(payload, _SHARED[codec], raw_size=size, max_size=max_bytes)
    except (MalformedCompression, TooLarge, cramjam.DecompressionError) as error:
        raise _refused(f"the payload cannot be decompressed: {error}") from error


def _snappy(payload: bytes, size: int) -> bytes:
    """The block begins with its size, by which memory is taken."""
    if cramjam.snappy.decompress_raw_len(payload) != size:
        raise MalformedCompression(f"not a snappy block of {size} bytes")
    return bytes(cramjam.snappy.decompress_raw(payload))


def _refused(message: str) -> RefusedMessage:
    return RefusedMessage(ServerError.NOT_ALLOWED_ERROR, message)
