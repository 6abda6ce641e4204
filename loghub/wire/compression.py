"""Compressed bodies: raw LZ4 blocks, zstd frames and zlib streams, with a bound on the decompressed size.

PutLogs bodies arrive compressed, and pull answers leave compressed (docs/sls-protocol.md 1.6). LZ4 is a bare
block without a frame or a length prefix: the size is in x-log-bodyrawsize, and Go fails unless it is exact.

`join` makes one LZ4 block of several without decompressing them. A block is a row of sequences, each of
literal bytes and a copy of earlier output; the last sequence has literals only (the LZ4 block format, "End of
block conditions"). So blocks cannot simply follow each other. But the last literals of a block and the first
literals of the next can become one sequence, and a copy counts backwards from its own place, so the rest
stays unchanged. That requires the place where the last sequence begins.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

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
        """The raw bytes. Raises the errors of `decompress`."""
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


_LONG = 15  # in a token: more bytes of the length follow
_MIN_LAST = 5  # literals of a last sequence
_MAX_TRIES = 4  # each try takes as long as decompressing the block, and a client may send many candidates
_MAX_FOUND = 256  # bytes that may begin a long last sequence; almost none of them is even a candidate
_NEVER_ENDING = b"\xff"  # as a token or a length, asks for more bytes than follow


@dataclass(frozen=True, slots=True)
class Block:
    """A valid LZ4 block, and where its last sequence begins; 0 if it has no other."""

    data: bytes | bytearray | memoryview
    last: int


@dataclass(frozen=True, slots=True)
class Literals:
    """Bytes that are not compressed."""

    data: bytes | bytearray | memoryview


def end_of_copies(block: bytes, *, raw_size: int) -> int | None:
    """Where the last sequence of a block begins; None if it is not of the usual form.

    ``block`` is what the LZ4 library decompresses to ``raw_size`` bytes. A candidate is checked by giving it
    one literal more: only where the last sequence truly begins, the block can still be decompressed. Anywhere
    else the bytes belong to a sequence whose length no longer fits, or begin one that never ends.
    """
    for at, literals in islice(_candidates(block), _MAX_TRIES):
        more = literals + 1
        longer = b"".join((block[:at], _head(more, 0), _NEVER_ENDING * more))
        try:
            lz4.block.decompress(longer, uncompressed_size=raw_size + 1)
        except (lz4.block.LZ4BlockError, ValueError):
            continue
        return at
    return None


def _candidates(block: bytes) -> Iterable[tuple[int, int]]:
    """Where a last sequence may begin, and the number of its literals."""
    size = len(block)
    for literals in range(_MIN_LAST, _LONG):
        at = size - literals - 1
        if at > 0 and block[at] == literals << 4:
            yield at, literals
    # First lengths of one byte, then lengths of several bytes, which begin with the largest byte.
    long = bytes((_LONG << 4,))
    maximum = _LONG + 0xFF
    yield from _long_candidates(block, long, begin=size - maximum - 1, end=size - _LONG - 1)
    yield from _long_candidates(block, long + b"\xff", begin=1, end=size - maximum - 1)


def _long_candidates(block: bytes, token: bytes, *, begin: int, end: int) -> Iterable[tuple[int, int]]:
    """The candidates in [begin, end) whose number of literals does not fit into the token."""
    for _ in range(_MAX_FOUND):
        end = block.rfind(token, max(begin, 1), max(end, 0))
        if end < 0:
            return
        # Every further byte of the length says that there are 255 literals more, and is no literal itself.
        maximum, rest = divmod(len(block) - end - 2 - _LONG, 0x100)
        if rest < 0xFF and block.startswith(b"\xff" * maximum + bytes((rest,)), end + 1):
            yield end, _LONG + maximum * 0xFF + rest


def is_strict(block: bytes) -> bool:
    """Whether every decoder accepts a block that the LZ4 library decompresses.

    The library takes a copy from 0 bytes back, which the format calls an error, and other decoders refuse it.
    Such a distance is two zero bytes; a block that has these anywhere counts as not strict.
    """
    return b"\0\0" not in block


def compressed(raw: bytes | bytearray) -> Block | Literals:
    """The raw bytes, compressed if that makes them shorter."""
    data = compress(raw, Compression.LZ4)
    last = end_of_copies(data, raw_size=len(raw)) if len(data) < len(raw) else None
    return Literals(raw) if last is None else Block(data, last)


def join(parts: Iterable[Block | Literals]) -> bytes:
    """One block that decompresses to what the parts contain, one after the other."""
    out: list[bytes | bytearray | memoryview] = []
    waiting: list[bytes | bytearray | memoryview] = []  # literals of the sequence that is not complete yet
    for part in parts:
        if isinstance(part, Literals):
            waiting.append(part.data)
            continue
        data, last = part.data, part.last
        begin, size = _literals(data, 0)
        waiting.append(data[begin : begin + size])
        if last:
            out.append(_head(sum(map(len, waiting)), data[0] & _LONG))
            out += waiting
            out.append(data[begin + size : last])
            waiting = [data[_literals(data, last)[0] :]]
    return b"".join((*out, _head(sum(map(len, waiting)), 0), *waiting))


def _literals(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Where the literals of the sequence at ``at`` begin, and how many there are."""
    size = data[at] >> 4
    at += 1
    if size == _LONG:
        while (more := data[at]) == 0xFF:
            size += more
            at += 1
        size += more
        at += 1
    return at, size


def _head(literals: int, copy: int) -> bytes:
    """The begin of a sequence up to its literals; ``copy`` is what the token says of the copied bytes."""
    if literals < _LONG:
        return bytes((literals << 4 | copy,))
    more = literals - _LONG
    return bytes((_LONG << 4 | copy,)) + b"\xff" * (more // 0xFF) + bytes((more % 0xFF,))
