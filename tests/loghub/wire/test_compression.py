"""Raw LZ4 blocks and zstd frames (docs/sls-protocol.md 1.6), and bodies with a wrong announced size.

LZ4 blocks are joined into one that every decoder reads, whatever they contain.
"""

import random
from typing import Any

import lz4.block
import pytest
import zstandard
from aliyun.log.compress import Compressor, CompressType
from hypothesis import example, given
from hypothesis import strategies as st

from loghub.wire import compression
from loghub.wire.compression import Block, Compression, Literals, compress, decompress
from loghub.wire.errors import MalformedCompression, TooLarge

BOUND = 1 << 20
BOTH = list(Compression)


@given(raw=st.binary(max_size=3000), how=st.sampled_from(BOTH))
def test_bytes_are_equal_after_decompression(raw: bytes, how: Compression) -> None:
    assert decompress(compress(raw, how), how, raw_size=len(raw), max_size=BOUND) == raw


@given(st.binary(max_size=3000))
def test_vendor_sdk_reads_and_writes_the_same_lz4(raw: bytes) -> None:
    ours = compress(raw, Compression.LZ4)
    assert Compressor.decompress(ours, len(raw), CompressType.LZ4) == raw
    theirs = Compressor.compress(raw, CompressType.LZ4)
    assert decompress(theirs, Compression.LZ4, raw_size=len(raw), max_size=BOUND) == raw


def test_an_lz4_block_of_literals_only_is_accepted() -> None:
    """What Go sends for input that does not compress: one token, then the bytes."""
    raw = bytes(range(200))
    block = bytes([0xF0, 200 - 15]) + raw
    assert decompress(block, Compression.LZ4, raw_size=len(raw), max_size=BOUND) == raw


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("size", [0, 99, 101, 5000])
def test_the_announced_size_must_be_exact(how: Compression, size: int) -> None:
    with pytest.raises(MalformedCompression):
        decompress(compress(b"x" * 100, how), how, raw_size=size, max_size=BOUND)


@pytest.mark.parametrize("how", BOTH)
def test_size_beyond_the_bound_is_too_large(how: Compression) -> None:
    with pytest.raises(TooLarge, match="1048577"):
        decompress(compress(b"x" * (BOUND + 1), how), how, raw_size=BOUND + 1, max_size=BOUND)


@pytest.mark.parametrize("how", BOTH)
def test_negative_size_is_malformed(how: Compression) -> None:
    with pytest.raises(MalformedCompression):
        decompress(compress(b"x", how), how, raw_size=-1, max_size=BOUND)


def test_a_zstd_frame_with_too_large_a_size_is_refused() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    with pytest.raises(MalformedCompression, match="the zstd frame has 104857600 bytes"):
        decompress(bomb, Compression.ZSTD, raw_size=1000, max_size=BOUND)


def test_a_zstd_frame_without_a_size_stops_at_the_announced_size() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50 << 20))
    with pytest.raises(MalformedCompression):
        decompress(bomb, Compression.ZSTD, raw_size=1000, max_size=BOUND)


def test_zstd_stream_without_size_is_read() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"hello" * 10)
    assert decompress(frame, Compression.ZSTD, raw_size=50, max_size=BOUND) == b"hello" * 10


def test_a_short_lz4_body_cannot_announce_a_large_size() -> None:
    """No memory is allocated for the announced size."""
    with pytest.raises(MalformedCompression, match="cannot decompress"):
        decompress(b"\x00" * 10, Compression.LZ4, raw_size=9 << 20, max_size=10 << 20)


@given(body=st.binary(max_size=200), how=st.sampled_from(BOTH), size=st.integers(0, 2000))
def test_arbitrary_bytes_are_malformed_and_never_crash(body: bytes, how: Compression, size: int) -> None:
    try:
        raw = decompress(body, how, raw_size=size, max_size=BOUND)
    except MalformedCompression:
        return
    assert len(raw) == size


def test_lz4_with_a_size_in_front_is_not_the_wire_form() -> None:
    with_size = lz4.block.compress(b"x" * 100, store_size=True)
    with pytest.raises(MalformedCompression):
        decompress(with_size, Compression.LZ4, raw_size=100, max_size=BOUND)


# Few different bytes, so that there is something to copy; the ends of sequences look like anything.
texts = st.lists(st.sampled_from([b"a", b"bc", b"\x50", b"\xf0\x00", b"\xff", b"x" * 20, b"\x60"])).map(
    b"".join
)
contents = texts | st.binary(max_size=400) | st.tuples(texts, st.integers(1, 400)).map(lambda a: a[0] * a[1])


def _unpacked(block: bytes, size: int) -> bytes:
    raw: bytes = lz4.block.decompress(block, uncompressed_size=size)
    return raw


def _copies(block: bytes) -> list[int]:
    """Where each sequence of a block begins, by the description of the format."""
    found, at = [], 0
    while True:
        found.append(at)
        begin, size = compression._literals(block, at)
        if begin + size == len(block):
            return found
        length_at = begin + size + 2
        if block[at] & 15 == 15:
            while block[length_at] == 0xFF:
                length_at += 1
            length_at += 1
        at = length_at


@given(contents)
@example(b"a" * 100)
@example(b"ab\x50" * 30 + b"\x50\x60\x70\x80\x90")
def test_the_last_sequence_is_where_a_walk_finds_it(raw: bytes) -> None:
    block = lz4.block.compress(raw, store_size=False)
    found = compression.end_of_copies(block, raw_size=len(raw))
    assert found == (_copies(block)[-1] or None)


@pytest.mark.parametrize("literals", [5, 14, 15, 269, 270, 271, 524, 525, 526, 15 + 255 * 40, 100_000])
def test_a_last_sequence_is_found_however_long_it_is(literals: int) -> None:
    """A last log with a token or a picture must not make a log group and each pull of it ten times larger."""
    begin, end = b"line " * (literals // 2 + 10), random.Random(literals).randbytes(literals)
    block = lz4.block.compress(begin, store_size=False)
    last = _copies(block)[-1]
    begin = begin[: -compression._literals(block, last)[1]]  # what is copied
    block = block[:last] + compression._head(literals, 0) + end
    assert _unpacked(block, len(begin) + literals) == begin + end
    assert compression.end_of_copies(block, raw_size=len(begin) + literals) == last


class _Searched(bytes):
    """Counts the searches."""

    searches = 0

    def rfind(self, *arguments: Any) -> int:
        self.searches += 1
        return super().rfind(*arguments)


@pytest.mark.parametrize("token", [b"\xf0", b"\xf0\xff"])
def test_what_may_begin_a_last_sequence_is_looked_at_a_bounded_number_of_times(token: bytes) -> None:
    """A client may send a block that consists of nothing else."""
    block = _Searched(bytes(300) + token * 100_000)
    assert not list(compression._candidates(block))[4:]
    assert 250 < block.searches < 600


@given(st.lists(st.tuples(contents, st.booleans()), max_size=6))
def test_a_joined_block_has_the_bytes_of_its_parts(pieces: list[tuple[bytes, bool]]) -> None:
    parts = [compression.compressed(raw) if packed else Literals(raw) for raw, packed in pieces]
    whole = b"".join(raw for raw, _ in pieces)
    joined = compression.join(parts)
    assert _unpacked(joined, len(whole)) == whole
    # The library that decompresses is strict about the end of a block, and so is the walk about its begin.
    assert _copies(joined)[0] == 0


def test_blocks_of_long_texts_are_joined() -> None:
    texts = [b"".join(b"%d of %d, " % (n, size) for n in range(size)) for size in (100, 5000, 200)]
    parts = [compression.compressed(text) for text in texts]
    assert all(isinstance(part, Block) and part.last for part in parts)
    joined = compression.join([parts[0], Literals(b"between"), parts[1], parts[2]])
    whole = texts[0] + b"between" + texts[1] + texts[2]
    assert _unpacked(joined, len(whole)) == whole
    assert len(joined) < sum(len(part.data) for part in parts) + 100


def test_few_candidates_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is as much work as to decompress the block, which a client must not multiply."""
    tried = []
    monkeypatch.setattr(lz4.block, "decompress", lambda block, **_: tried.append(block) or _refuse())
    tail = b"".join(bytes((0xF0, 183 - at)) for at in range(0, 160, 2))
    block = bytes(300) + tail.ljust(200, b"~")
    assert len(list(compression._candidates(block))) == 80
    assert compression.end_of_copies(block, raw_size=10_000) is None
    assert len(tried) == 4


def _refuse() -> None:
    raise lz4.block.LZ4BlockError("not a block")


def test_what_does_not_become_shorter_stays() -> None:
    assert compression.compressed(bytes(range(256))) == Literals(bytes(range(256)))


@pytest.mark.parametrize(
    ("block", "strict"), [(b"\x10a\x00\x00\x50aaaaa", False), (b"\x10a\x01\x00\x50aaaaa", True)]
)
def test_a_copy_from_nowhere_is_not_strict(block: bytes, strict: bool) -> None:
    """The LZ4 library accepts both; other decoders refuse the first."""
    assert compression.is_strict(block) is strict
