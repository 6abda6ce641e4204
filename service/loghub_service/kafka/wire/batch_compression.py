"""Compressed record batches of producers, with a bound on the decompressed size.

The codec is in the batch's attributes (https://kafka.apache.org/documentation/#recordbatch). The size that a
client claims is compared with the size that the codec can reach at all before memory is allocated. Answers
are not compressed, because consumers read both.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum

import cramjam
import lz4.frame
import zstandard

from loghub_service.kafka.wire.errors import BadBatch, ErrorCode

_GZIP_WBITS = 31  # 16 for gzip's header and trailer, 15 for its largest window
# The maximum of bytes that a byte can become: snappy copies 64 bytes by 3, lz4 255 by one, gzip 258 by two
# bits. zstd has no such bound.
_SNAPPY_MAX_RATIO, _LZ4_MAX_RATIO, _GZIP_MAX_RATIO = 22, 255, 1032
_ZSTD_CHUNK_BYTES = 1 << 17  # the maximum of a block of zstd
# The window of zstd's highest ordinary level; a frame of unknown size may not need more.
_ZSTD_WINDOW_BYTES = 1 << 23
# Java's clients write snappy in blocks behind this header, 8 bytes of version numbers, and a length each.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = len(_XERIAL_MAGIC) + 8
_LENGTH = struct.Struct(">I")


class BatchCompression(IntEnum):
    """The lowest three bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(body: bytes, how: BatchCompression, *, max_bytes: int) -> bytes:
    """The records without compression.

    Raises BadBatch: MESSAGE_TOO_LARGE if they have more than ``max_bytes``, CORRUPT_MESSAGE if ``body`` was
    not compressed by that codec.
    """
    if how is BatchCompression.NONE:
        raw = body
    else:
        try:
            raw = _CODECS[how](body, max_bytes)
        except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError) as error:
            raise _corrupt(f"not {how.name.lower()}: {error}") from error
    if len(raw) > max_bytes:
        raise _too_large(max_bytes)
    return raw


def decompressed_bytes(size: int, how: int, *, max_bytes: int) -> int:
    """The maximum that ``size`` compressed bytes can become, if at most ``max_bytes`` are accepted."""
    ratios: dict[int, int] = {
        BatchCompression.NONE: 1,
        BatchCompression.GZIP: _GZIP_MAX_RATIO,
        BatchCompression.SNAPPY: _SNAPPY_MAX_RATIO,
        BatchCompression.LZ4: _LZ4_MAX_RATIO,
    }
    return min(ratios[how] * size, max_bytes) if how in ratios else max_bytes


def _corrupt(message: str) -> BadBatch:
    return BadBatch(ErrorCode.CORRUPT_MESSAGE, message)


def _too_large(max_bytes: int) -> BadBatch:
    return BadBatch(ErrorCode.MESSAGE_TOO_LARGE, f"the records have more than {max_bytes} bytes")


def _gzip(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WBITS)
    raw = decompressor.decompress(body, max_bytes + 1)
    if len(raw) <= max_bytes and (not decompressor.eof or decompressor.unused_data):
        raise _corrupt("not exactly one member of gzip")
    return raw


def _snappy(body: bytes, max_bytes: int) -> bytes:
    if not body.startswith(_XERIAL_MAGIC):
        return _snappy_block(body, max_bytes)
    blocks: list[bytes] = []
    at, left = _XERIAL_HEADER_BYTES, max_bytes
    while at < len(body):
        start = at + _LENGTH.size
        at = start + int.from_bytes(body[at:start], "big")
        if at > len(body):
            raise _corrupt("a block of snappy passes the end of the batch")
        blocks.append(_snappy_block(body[start:at], left))
        left -= len(blocks[-1])
    return b"".join(blocks)


def _snappy_block(block: bytes, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise _corrupt(f"{len(block)} bytes of snappy cannot decompress to {size}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(body: bytes, max_bytes: int) -> bytes:
    # The decompressor allocates the whole size that it may return.
    bound = min(max_bytes, _LZ4_MAX_RATIO * len(body)) + 1
    decompressor = lz4.frame.LZ4FrameDecompressor()
    raw: bytes = decompressor.decompress(body, max_length=bound)
    if len(raw) <= max_bytes and (not decompressor.eof or decompressor.unused_data):
        raise _corrupt("not exactly one frame of lz4")
    return raw


def _zstd(body: bytes, max_bytes: int) -> bytes:
    window = 1 << max(_ZSTD_WINDOW_BYTES, max_bytes).bit_length()
    chunks: list[bytes] = []
    size = 0
    with zstandard.ZstdDecompressor(max_window_size=window).stream_reader(body) as stream:
        while size <= max_bytes and (chunk := stream.read(_ZSTD_CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
    return b"".join(chunks)


_CODECS: Mapping[BatchCompression, Callable[[bytes, int], bytes]] = {
    BatchCompression.GZIP: _gzip,
    BatchCompression.SNAPPY: _snappy,
    BatchCompression.LZ4: _lz4,
    BatchCompression.ZSTD: _zstd,
}
