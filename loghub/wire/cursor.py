"""Cursors on the wire: base64 of a decimal 64-bit integer (docs/sls-protocol.md 2.1).

This is the only module that converts between the wire's cursor and the domain's integer. The clients of
Python and Go decode a cursor themselves and subtract 1, so the form is part of the wire, and a cursor
needs a predecessor: real cursors start above 0.
"""

import base64
import binascii
from typing import Literal

from loghub.wire.errors import MalformedCursor

MAX_CURSOR = 2**63 - 1  # a cursor is a signed 64-bit number for Spark, for Kafka and in a segment
Position = Literal["begin", "end"] | int  # where to read: int is unix seconds, the time of receipt
# Base64 of 19 digits is 28 characters; a sign and a trailing newline may be added.
_MAX_CHARS = 32


def encode(cursor: int) -> str:
    """The wire form of a cursor in 0..2**63-1, for example ``MTI=`` for 12. Raises MalformedCursor."""
    if not 0 <= cursor <= MAX_CURSOR:
        raise MalformedCursor(f"cursor {cursor} is not in 0..2**63-1")
    return base64.b64encode(b"%d" % cursor).decode("ascii")


def decode(text: str) -> int:
    """The integer of a wire cursor. Raises MalformedCursor, also for an empty cursor."""
    # Python's SDK encodes with line ends (encodebytes), so a newline may follow.
    compact = text.strip()
    if not compact or len(compact) > _MAX_CHARS:
        raise MalformedCursor(f"cursor {text[:_MAX_CHARS]!r} is empty or too long")
    try:
        digits = base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedCursor(f"cursor {text!r} is not base64") from error
    if not digits.isdigit() or int(digits) > MAX_CURSOR:
        raise MalformedCursor(f"cursor {text!r} is not a decimal 64-bit integer")
    return int(digits)
