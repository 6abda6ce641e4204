"""Raw LZ4 blocks and zstd frames (docs/sls-protocol.md 1.6), and what comes of lies about sizes."""

import lz4.block
import pytest
import zstandard
from aliyun.log.compress import Compressor, CompressType
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.compression import Compression, compress, decompress
from loghub.wire.errors import MalformedCompression, TooLarge

BOUND = 1 << 20
BOTH = list(Compression)


@given(raw=st.binary(max_size=3000), how=st.sampled_from(BOTH))
def test_bytes_come_back(raw: bytes, how: Compression) -> None:
    assert decompress(compress(raw, how), how, raw_size=len(raw), max_size=BOUND) == raw


@given(st.binary(max_size=3000))
def test_vendor_sdk_reads_and_writes_the_same_lz4(raw: bytes) -> None:
    ours = compress(raw, Compression.LZ4)
    assert Compressor.decompress(ours, len(raw), CompressType.LZ4) == raw
    theirs = Compressor.compress(raw, CompressType.LZ4)
    assert decompress(theirs, Compression.LZ4, raw_size=len(raw), max_size=BOUND) == raw


def test_literal_only_block_longer_than_its_content() -> None:
    """What Go sends for input that does not compress: one token, then the bytes."""
    raw = bytes(range(200))
    block = bytes([0xF0, 200 - 15]) + raw
    assert decompress(block, Compression.LZ4, raw_size=len(raw), max_size=BOUND) == raw


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("size", [0, 99, 101, 5000])
def test_announced_size_must_be_exact(how: Compression, size: int) -> None:
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


def test_zstd_bomb_is_refused_by_what_its_frame_says() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    with pytest.raises(MalformedCompression, match="a zstd frame of 104857600"):
        decompress(bomb, Compression.ZSTD, raw_size=1000, max_size=BOUND)


def test_zstd_bomb_that_does_not_tell_its_size_stops_at_the_announced_one() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50 << 20))
    with pytest.raises(MalformedCompression):
        decompress(bomb, Compression.ZSTD, raw_size=1000, max_size=BOUND)


def test_zstd_stream_without_size_is_read() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"hello" * 10)
    assert decompress(frame, Compression.ZSTD, raw_size=50, max_size=BOUND) == b"hello" * 10


def test_short_lz4_cannot_promise_much() -> None:
    """The memory for the promise is not even taken."""
    with pytest.raises(MalformedCompression, match="cannot hold"):
        decompress(b"\x00" * 10, Compression.LZ4, raw_size=9 << 20, max_size=10 << 20)


@given(body=st.binary(max_size=200), how=st.sampled_from(BOTH), size=st.integers(0, 2000))
def test_garbage_is_malformed_never_a_crash(body: bytes, how: Compression, size: int) -> None:
    try:
        raw = decompress(body, how, raw_size=size, max_size=BOUND)
    except MalformedCompression:
        return
    assert len(raw) == size


def test_lz4_with_a_size_in_front_is_not_the_wire_form() -> None:
    with_size = lz4.block.compress(b"x" * 100, store_size=True)
    with pytest.raises(MalformedCompression):
        decompress(with_size, Compression.LZ4, raw_size=100, max_size=BOUND)
