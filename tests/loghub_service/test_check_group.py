"""The check of a log group, natively and in Python: both store the same, and refuse the same."""

from dataclasses import replace

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.wire import loggroup, native
from loghub.wire.compression import Compression
from loghub.wire.errors import LogHubError, MalformedInput
from loghub.wire.loggroup import Log, LogGroup
from loghub_service.api.logs import Checked, check_group
from loghub_service.storage.stored_group import unpacked
from tests.loghub.wire.groups import groups, logs

MAX_BYTES = 1 << 20
# Above and below the size from which groups are stored in LZ4, with much and with little to copy.
repeated = st.builds(
    lambda group, times: replace(group, logs=group.logs * times), groups, st.sampled_from([1, 2, 30, 200])
)
levels = st.sampled_from([{}, {"mode": "fast", "acceleration": 50}, {"mode": "high_compression"}])


def block_of(group: bytes, level: dict[str, object]) -> bytes:
    block: bytes = lz4.block.compress(group, store_size=False, **level)
    return block


def in_python(body: bytes, raw_size: int) -> tuple[Checked, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "stored_group", native.left_to_python)
        patch.setattr(native, "count_logs", native.left_to_python)
        return check_group(body, Compression.LZ4, raw_size=raw_size, max_size=MAX_BYTES)


@given(repeated, levels)
def test_a_group_is_stored_in_the_same_form_natively_and_in_python(
    group: LogGroup, level: dict[str, object]
) -> None:
    raw = loggroup.encode(group)
    body = block_of(raw, level)
    checked = check_group(body, Compression.LZ4, raw_size=len(raw), max_size=MAX_BYTES)
    # Python takes two zeros for a copy from no distance, and compresses the group again.
    assert checked == in_python(body, len(raw)) or (native.is_installed and b"\0\0" in body)
    assert [(unpacked(one.stored), one.logs) for one in checked] == [(raw, len(group.logs))] * bool(
        group.logs
    )


@given(logs, st.integers(1, 200), levels)
def test_the_native_check_knows_the_blocks_of_clients(log: Log, count: int, level: dict[str, object]) -> None:
    raw = loggroup.encode(LogGroup(logs=(log,) * count))
    found = native.stored_group(block_of(raw, level), len(raw), MAX_GROUP_LOGS)
    assert (found is not None) == native.is_installed
    assert native.stored_group(block_of(raw, level), len(raw), count - 1) is None  # Python cuts it


@st.composite
def damaged_blocks(draw: st.DrawFn) -> tuple[bytes, int]:
    """A block with a few bytes changed, cut out or put in, and a size that may be wrong."""
    raw = loggroup.encode(draw(repeated))
    body = bytearray(block_of(raw, draw(levels)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        cut = draw(st.integers(0, 2))
        body[at : at + cut] = draw(st.binary(max_size=2))
    return bytes(body), max(0, len(raw) + draw(st.sampled_from([0, 0, 0, -1, 1])))


token = st.integers(0, 255).map(lambda value: bytes((value,)))
usual_bytes = st.sampled_from([b"\x0a", b"\0", b"\x01", b"\x14", b"\xff"])
small_blocks = st.lists(usual_bytes | token, max_size=24).map(b"".join)


@given(damaged_blocks() | st.tuples(small_blocks, st.integers(0, 80)))
def test_the_native_check_takes_no_block_that_python_refuses(case: tuple[bytes, int]) -> None:
    body, raw_size = case
    found = native.stored_group(body, raw_size, MAX_GROUP_LOGS)
    try:
        (expected,) = in_python(body, raw_size)
    except (MalformedInput, LogHubError, ValueError):
        assert found is None
        return
    assert found is None or (found[0], unpacked(found[1])) == (expected.logs, unpacked(expected.stored))


HEAD_BYTES = 19  # of the group below, up to the first byte of its value


@pytest.mark.parametrize(
    "odd",
    [
        (1, 1996, b"\x40vvvv"),  # fewer than five last literals
        (1, 1985, b"\x40vvvv\x01\0\x60vvvvvv"),  # a copy that begins in the last twelve bytes
        (0, 1985, b"\xe0" + b"v" * 14),  # a copy from no distance
        (HEAD_BYTES + 1, 1985, b"\xe0" + b"v" * 14),  # from before the begin
        (1, 1985, b"\xe0" + b"v" * 13),  # a byte short
    ],
)
def test_a_block_that_other_decoders_refuse_is_left_to_python(odd: tuple[int, int, bytes]) -> None:
    """A group in LZ4 is pulled as it came, also by decoders that are stricter than the library."""
    raw = loggroup.encode(LogGroup(logs=(Log(time=1_700_000_000, contents=(("k", b"v" * 2000),)),)))

    def found(distance: int, copied: int, rest: bytes) -> tuple[int, bytes] | None:
        """Literals, a copy of bytes before them, and the rest of the block."""
        more, last = divmod(copied - 4 - 15, 0xFF)
        begin = bytes((0xFF, HEAD_BYTES - 15)) + raw[:HEAD_BYTES] + distance.to_bytes(2, "little")
        return native.stored_group(begin + b"\xff" * more + bytes((last,)) + rest, len(raw), 10)

    assert (found(1, 1985, b"\xe0" + b"v" * 14) is not None) == native.is_installed
    assert found(*odd) is None
