"""What is durable of a cursor, as bytes: the whole of it, and what was acknowledged since.

Numbers are varints, and a position is stored as the difference to its predecessor, so that a range takes
about 4 bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from loghub_service.subscription.acked import Acked, Run
from loghub_service.subscription.state import SavedCursor


class BadSavedCursor(ValueError):  # noqa: N818 - says what is wrong
    """Bytes that no release has written."""


def pack_cursor(cursor: SavedCursor) -> bytes:
    """The whole of a cursor."""
    out = bytearray()
    _put(out, cursor.mark)
    _put_backlog(out, cursor.high, cursor.unacked_below)
    _put_runs(out, cursor.mark, cursor.ranges)
    return bytes(out)


def pack_delta(runs: Iterable[Run], backlog: tuple[int, int]) -> bytes:
    """What was acknowledged since the last time, in any order, and `Cursor.backlog` now."""
    joined = Acked(-1)
    for first, stop in runs:
        joined.add(first, stop)
    out = bytearray()
    _put_backlog(out, *backlog)
    _put_runs(out, 0, joined.ranges)
    return bytes(out)


def unpack(packed: bytes, deltas: Iterable[bytes]) -> SavedCursor:
    """A cursor with its deltas in order. Raises BadSavedCursor."""
    numbers = _numbers(packed)
    head = tuple(islice(numbers, 3))
    if len(head) < 3:
        raise BadSavedCursor("a saved cursor ends within its mark or its backlog")
    mark, high, unacked_below = head
    acked = Acked(mark, tuple(_runs(mark, numbers)))
    for delta in deltas:
        numbers = _numbers(delta)
        head = tuple(islice(numbers, 2))
        if len(head) < 2:
            raise BadSavedCursor("a delta of a saved cursor ends within its backlog")
        high, unacked_below = head
        for first, stop in _runs(0, numbers):
            acked.add(first, stop)
    return SavedCursor(mark=acked.mark, ranges=acked.ranges, high=high, unacked_below=unacked_below)


def _put_backlog(out: bytearray, high: int, unacked_below: int) -> None:
    _put(out, high)
    _put(out, unacked_below)


def _put_runs(out: bytearray, after: int, runs: Sequence[Run]) -> None:
    for first, stop in runs:
        _put(out, first - after)
        _put(out, stop - first)
        after = stop


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise BadSavedCursor("a saved cursor ends within a number")


def _runs(after: int, numbers: Iterator[int]) -> Iterator[Run]:
    for gap in numbers:
        size = next(numbers, 0)
        if size == 0:
            raise BadSavedCursor("a range of a saved cursor is empty")
        yield after + gap, after + gap + size
        after += gap + size
