"""Cursors: base64 of a decimal 64-bit integer (docs/sls-protocol.md 2.1)."""

import base64
import contextlib
from typing import Any

import pytest
from aliyun.log import util
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import cursor
from loghub.wire.errors import MalformedCursor


@given(st.integers(min_value=0, max_value=cursor.MAX_CURSOR))
def test_a_cursor_is_equal_after_decoding(number: int) -> None:
    assert cursor.decode(cursor.encode(number)) == number


def test_the_wire_form_of_a_range() -> None:
    assert cursor.encode(12) == "MTI="


@given(st.integers(min_value=1, max_value=cursor.MAX_CURSOR))
def test_the_vendor_sdk_decrements_our_cursors_and_we_decode_its_form(number: int) -> None:
    """As its get_previous_cursor_time does; its encoder ends in a newline."""
    vendor: Any = util
    before = vendor.base64_encodestring(str(int(vendor.base64_decodestring(cursor.encode(number))) - 1))
    assert before.endswith("\n")
    assert cursor.decode(before) == number - 1


@pytest.mark.parametrize("number", [-1, 2**63])
def test_number_out_of_range_is_no_cursor(number: int) -> None:
    with pytest.raises(MalformedCursor):
        cursor.encode(number)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "12",
        "!!!!",
        "MT!I=",
        "MTI=MTI=",
        "é" * 4,
        "A" * 4000,
        base64.b64encode(b"-5").decode(),
        base64.b64encode(b" 5").decode(),
        base64.b64encode(b"1.5").decode(),
        base64.b64encode(str(2**63).encode()).decode(),
        base64.b64encode("٣".encode()).decode(),  # a digit, but not ASCII's
    ],
)
def test_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(MalformedCursor):
        cursor.decode(text)


@pytest.mark.long
@given(st.text(max_size=40))
def test_any_text_is_a_cursor_or_malformed(text: str) -> None:
    with contextlib.suppress(MalformedCursor):
        assert 0 <= cursor.decode(text) <= cursor.MAX_CURSOR
