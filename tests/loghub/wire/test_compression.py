"""Raw LZ4 blocks and zstd frames (docs/sls-protocol.md 1.6), and bodies with a wrong announced size."""

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
