"""Slots of keys as Pulsar has them, and how consumers share them."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_service.subscription.slots import MAX_HASHED_BYTES, SLOTS, SlotOwners, is_legal, overlap, slot_of


@pytest.mark.parametrize(
    ("key", "hash_value"),
    [  # the hash's own test values
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"abc", 0xB3DD93FA),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_the_slot_of_a_key_is_that_of_murmur3(key: bytes, hash_value: int) -> None:
    assert slot_of(key) == (hash_value & 0x7FFFFFFF) % SLOTS


def test_a_long_key_has_the_slot_of_its_digest() -> None:
    longest, longer = bytes(MAX_HASHED_BYTES), bytes(MAX_HASHED_BYTES + 1)
    assert slot_of(longest) != slot_of(hashlib.sha256(longest).digest())
    assert slot_of(longer) == slot_of(hashlib.sha256(longer).digest())


def test_the_first_consumer_has_all_slots_and_a_newcomer_the_upper_half_of_the_largest_piece() -> None:
    owners = SlotOwners()
    assert owners.owner(0) is None
    for consumer in (7, 8, 9):
        owners.join(consumer)
    assert owners.pieces() == ((0, 7), (SLOTS // 4, 9), (SLOTS // 2, 8))
    assert [owners.owner(s) for s in (0, SLOTS // 4 - 1, SLOTS // 4, SLOTS - 1)] == [7, 7, 9, 8]


def test_the_largest_piece_need_not_be_the_first() -> None:
    owners = SlotOwners()
    for consumer in (7, 8, 9, 10):
        owners.join(consumer)
    assert owners.pieces() == ((0, 7), (SLOTS // 4, 9), (SLOTS // 2, 8), (SLOTS // 4 * 3, 10))


@pytest.mark.parametrize(
    ("leaver", "pieces"),
    [
        (7, ((0, 9), (SLOTS // 2, 8))),
        (9, ((0, 7), (SLOTS // 4, 8))),
        (8, ((0, 7), (SLOTS // 4, 9))),
    ],
)
def test_the_next_piece_gets_the_slots_of_a_leaver_and_at_the_top_the_one_before(
    leaver: int, pieces: tuple[tuple[int, int], ...]
) -> None:
    owners = SlotOwners()
    for consumer in (7, 8, 9):
        owners.join(consumer)
    owners.leave(leaver)
    assert owners.pieces() == pieces


@given(st.lists(st.integers(0, 9), max_size=40))
def test_every_consumer_has_one_piece_while_others_come_and_go(changes: list[int]) -> None:
    owners, there = SlotOwners(), set[int]()
    for consumer in changes:
        if consumer in there:
            owners.leave(consumer)
        else:
            owners.join(consumer)
        there ^= {consumer}
        starts = [start for start, _ in owners.pieces()]
        assert starts == sorted(set(starts))
        assert starts[0] == 0
        assert sorted(owner for _, owner in owners.pieces() if owner is not None) == sorted(there)


def test_chosen_ranges_may_leave_slots_without_an_owner() -> None:
    owners = SlotOwners()
    owners.assign([((10, 19), 1), ((30, SLOTS - 1), 2), ((20, 24), 1)])
    slots = (0, 9, 10, 19, 20, 24, 25, 30, SLOTS - 1)
    assert [owners.owner(s) for s in slots] == [None, None, 1, 1, 1, 1, None, 2, 2]
    owners.assign([])
    assert owners.pieces() == ((0, None),)


def test_pieces_are_restored() -> None:
    owners, copy = SlotOwners(), SlotOwners()
    owners.assign([((1, 2), 3)])
    copy.restore(owners.pieces())
    assert copy.pieces() == owners.pieces() == ((0, None), (1, 3), (3, None))


@pytest.mark.parametrize(
    ("ranges", "legal"),
    [
        ([], False),
        ([(0, SLOTS - 1)], True),
        ([(0, SLOTS)], False),
        ([(-1, 3)], False),
        ([(3, 2)], False),
        ([(5, 5), (6, 9)], True),
        ([(5, 6), (6, 9)], False),
        ([(6, 9), (5, 6)], False),
        ([(0, 1), (3, 2)], False),
        ([(3, 2), (5, 6)], False),
    ],
)
def test_ranges_are_legal_within_the_slots_and_apart_from_each_other(
    ranges: list[tuple[int, int]], legal: bool
) -> None:
    assert is_legal(ranges) is legal


def test_ranges_overlap_if_they_have_a_slot_in_common() -> None:
    assert overlap([(0, 4)], [(4, 9)])
    assert overlap([(4, 9)], [(0, 4)])
    assert not overlap([(0, 3), (10, 11)], [(4, 9)])
