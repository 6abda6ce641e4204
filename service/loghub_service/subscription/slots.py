"""Slots of Key_Shared: which one a key has, and which consumer owns it.

A key is hashed to one of 65,536 slots, by the hash that Pulsar's brokers and clients use (MurmurHash3, 32
bits, seed 0: https://github.com/aappleby/smhasher/wiki/MurmurHash3), so that a consumer which chooses its
ranges of slots gets the keys that it would get there.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

SLOTS = 1 << 16  # Pulsar's number of slots
SlotRange = tuple[int, int]  # slots first <= s <= last, as consumers write them

_MASK = 0xFFFFFFFF  # MurmurHash3 computes in 32 bits


# A hash in Python takes a microsecond for each few bytes, so a longer key is replaced by its digest: the slot
# is then not Pulsar's, and a client cannot stop the service with keys of a megabyte.
MAX_HASHED_BYTES = 1024
CACHED_KEYS = 16_384  # of at most 16 MiB; the keys of a stream repeat


def slot_of(key: bytes) -> int:
    """The slot of a key."""
    return _slot_of(key if len(key) <= MAX_HASHED_BYTES else hashlib.sha256(key).digest())


@lru_cache(maxsize=CACHED_KEYS)
def _slot_of(key: bytes) -> int:
    """The slot by MurmurHash3, whose sign bit is dropped before the remainder is taken, as Pulsar does."""
    return (_murmur3(key) & 0x7FFFFFFF) % SLOTS


def _murmur3(data: bytes) -> int:
    value = 0
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        value ^= _mixed(int.from_bytes(data[i : i + 4], "little"))
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        value ^= _mixed(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _mixed(block: int) -> int:
    block = block * 0xCC9E2D51 & _MASK
    block = (block << 15 | block >> 17) & _MASK
    return block * 0x1B873593 & _MASK


class SlotOwners:
    """Which consumer, by its number, owns which slots. Changed in place.

    The pieces are in order, each from its start to the start of the next; the owner None has the slots that
    nobody has. Consumers without ranges of their own share all slots: the first has all of them, a newcomer
    takes the upper half of the largest piece, and the piece of one that leaves goes to the next piece, or
    from the top to the piece before. So a change concerns few slots, and the split does not depend on names.
    Consumers with ranges of their own have these. The caller does not mix the two kinds.
    """

    __slots__ = ("_owners", "_starts")

    def __init__(self) -> None:
        self._starts = [0]
        self._owners: list[int | None] = [None]

    def owner(self, slot: int) -> int | None:
        return self._owners[bisect_right(self._starts, slot) - 1]

    def pieces(self) -> tuple[tuple[int, int | None], ...]:
        """The start and the owner of each piece, in order."""
        return tuple(zip(self._starts, self._owners, strict=True))

    def restore(self, pieces: Sequence[tuple[int, int | None]]) -> None:
        """The inverse of `pieces`."""
        self._starts = [start for start, _ in pieces]
        self._owners = [owner for _, owner in pieces]

    def join(self, consumer: int) -> None:
        """The consumer takes the upper half of the largest piece, or of the lowest of several."""
        if self._owners == [None]:
            self._owners = [consumer]
            return
        ends = [*self._starts[1:], SLOTS]
        sizes = [end - start for start, end in zip(self._starts, ends, strict=True)]
        largest = sizes.index(max(sizes))
        self._starts.insert(largest + 1, self._starts[largest] + (sizes[largest] + 1) // 2)
        self._owners.insert(largest + 1, consumer)

    def leave(self, consumer: int) -> None:
        if self._owners == [consumer]:
            self._owners = [None]
            return
        i = self._owners.index(consumer)
        if i < len(self._owners) - 1:
            del self._owners[i], self._starts[i + 1]
        else:
            del self._owners[i], self._starts[i]

    def assign(self, chosen: Iterable[tuple[SlotRange, int]]) -> None:
        """Replace everything by the ranges that consumers have chosen, which do not overlap."""
        self._starts, self._owners = [0], [None]
        for (first, last), consumer in sorted(chosen):
            if self._starts[-1] == first:
                self._owners[-1] = consumer
            else:
                self._starts.append(first)
                self._owners.append(consumer)
            self._starts.append(last + 1)  # above the last slot, nothing asks for the owner
            self._owners.append(None)


def is_legal(ranges: Iterable[SlotRange]) -> bool:
    """Whether there is a range, and all ranges lie within the slots without overlapping."""
    in_order = sorted(ranges)
    return (
        bool(in_order)
        and all(0 <= first <= last < SLOTS for first, last in in_order)
        and not any(a[1] >= b[0] for a, b in pairwise(in_order))
    )


def overlap(some: Iterable[SlotRange], others: Iterable[SlotRange]) -> bool:
    """Whether a slot is in both; neither of the two overlaps itself."""
    in_order = sorted([*some, *others])
    return any(a[1] >= b[0] for a, b in pairwise(in_order))
