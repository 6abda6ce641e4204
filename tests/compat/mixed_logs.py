"""Log groups whose LZ4 blocks differ in kind, so that a pull brings all of them to the decoder of a library.

The service joins the blocks of a pull without decompressing them (docs/decisions/storage.md). Each log is a
number; some have more behind it.
"""

import base64
import random

_MOST = 200  # logs of a group with more than a number, so that a million of them stay small
_TOKEN, _LONG_TOKEN = 40, 4000  # random bytes; the text is a quarter longer
_ZEROS = 600
KINDS = 4


def texts(numbers: range, kind: int) -> dict[int, str]:
    """The logs of these numbers that say more than their number. ``kind``:

    0. None does. A large group compresses well, and a small one comes without compression.
    1. Each has a token: there is nothing to copy, so that the group is all literals.
    2. The last one has a long token, so that the block ends with long literals.
    3. The first one has a long token and the last one zeros, which makes a block that the service compresses
       again.
    """
    first, last = numbers[0], numbers[-1]
    if kind == 1:
        return {number: f"{number} {_token(number, _TOKEN)}" for number in numbers[:_MOST]}
    if kind == 2:
        return {last: f"{last} {_token(last, _LONG_TOKEN)}"}
    if kind == 3:
        return {first: f"{first} {_token(first, _LONG_TOKEN)}", last: f"{last} " + "\0" * _ZEROS}
    return {}


def number_of(text: str) -> int:
    """-1 if the text does not begin with a number."""
    number = text.partition(" ")[0]
    return int(number) if number.isdecimal() else -1


def _token(number: int, size: int) -> str:
    return base64.b85encode(random.Random(number).randbytes(size)).decode()
