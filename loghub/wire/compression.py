"""Compressed bodies: raw LZ4 blocks, zstd frames and zlib streams, with a bound on the decompressed size.

PutLogs bodies arrive compressed, and pull answers leave compressed (docs/sls-protocol.md 1.6). LZ4 is a
bare block without a frame or a length prefix: the size is in x-log-bodyrawsize, and Go fails unless it
is exact.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import lz4.block
import zstandard

from loghub.wire.errors import MalformedCompression, TooLarge

_ZSTD_LEVEL = 1  # speed matters more than size; the SDKs use the same
# One byte of an LZ4 block expands to at most 255: a larger size is refused before memory is allocated.
_LZ4_MAX_RATIO = 255


class Compression(StrEnum):
    """The values of x-log-compresstype. The service never answers with the last, which only Java sends."""

    LZ4 = "lz4"
    ZSTD = "zstd"
    DEFLATE = "deflate"


@dataclass(frozen=True, slots=True)
class Packed:
    """A body as it was transferred, and its size without compression; `how` is None if it has none."""

    content: bytes
    size: int
    how: Compression | None

    @classmethod
    def plain(cls, body: bytes) -> "Packed":
        return cls(body, len(body), None)

    def unpacked(self, *, max_size: int) -> bytes:
        """The raw bytes. Raises as `decompress` does."""
        if self.how is None:
            return self.content
        return decompress(self.content, self.how, raw_size=self.size, max_size=max_size)


def compress(raw: bytes | bytearray | memoryview, how: Compression) -> bytes:
    """The compressed form, without a size prefix."""
    if how is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(raw)
    if how is Compression.DEFLATE:
        return zlib.compress(raw)
    compressed: bytes = lz4.block.compress(raw, store_size=False)
    return compressed


def decompress(body: bytes, how: Compression, *, raw_size: int, max_size: int) -> bytes:
    """The raw bytes: exactly ``raw_size`` of them, which may not exceed ``max_size``.

    Raises TooLarge before anything is decompressed, and MalformedCompression in all other cases.
    """
    if raw_size > max_size:
        raise TooLarge(f"the announced size of {raw_size} bytes exceeds the limit of {max_size}")
    if raw_size < 0:
        raise MalformedCompression(f"the announced size {raw_size} is negative")
    if raw_size == 0 and not body:
        return b""
    raw = _DECOMPRESS[how](body, raw_size)
    if len(raw) != raw_size:
        raise MalformedCompression(f"{how} decompressed to {len(raw)} bytes, not to the announced {raw_size}")
    return raw


def _unlz4(body: bytes, raw_size: int) -> bytes:
    if raw_size > _LZ4_MAX_RATIO * len(body):
        raise MalformedCompression(f"{len(body)} bytes of lz4 cannot decompress to {raw_size}")
    try:
        raw: bytes = lz4.block.decompress(body, uncompressed_size=raw_size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise MalformedCompression(f"not an lz4 block of {raw_size} bytes: {error}") from error
    return raw


def _unzstd(body: bytes, raw_size: int) -> bytes:
    # The frame's own size is checked first, because the decompressor would allocate that much.
    try:
        frame_size = zstandard.frame_content_size(body)
        if frame_size > raw_size:
            raise MalformedCompression(f"the zstd frame has {frame_size} bytes, not the announced {raw_size}")
        decompressor = zstandard.ZstdDecompressor()
        return decompressor.decompress(body, max_output_size=max(raw_size, 1), allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedCompression(f"not a zstd frame of {raw_size} bytes: {error}") from error


def _inflate(body: bytes, raw_size: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(body, raw_size + 1)  # one byte more shows a longer stream
    except zlib.error as error:
        raise MalformedCompression(f"not a zlib stream of {raw_size} bytes: {error}") from error
    if len(raw) == raw_size and not (decompressor.eof and not decompressor.unused_data):
        raise MalformedCompression(f"not a whole zlib stream of {raw_size} bytes")
    return raw


_DECOMPRESS: Mapping[Compression, Callable[[bytes, int], bytes]] = {
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
    Compression.DEFLATE: _inflate,
}
