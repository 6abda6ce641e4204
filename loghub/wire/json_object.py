"""The members of a JSON object as they are written: in their order, with a key that occurs twice, and with
the characters of each number, list and object unchanged.

A log can hold everything that such an object says, so nothing of it is decoded and encoded again.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

Members = tuple[tuple[str, str | bytes], ...]
"""A value is a str if it was a string, and otherwise the bytes of its own text."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FAST = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_SPACE = re.compile(r"[ \t\n\r]*")


class NotAnObject(ValueError):  # noqa: N818 - says what is so
    """The text is not JSON, or not an object; the message says which."""


def members_of(text: bytes) -> Members:
    """A byte order mark before the text is left out. Raises NotAnObject."""
    text = text.removeprefix(_BYTE_ORDER_MARK).strip(b" \t\r\n")
    try:
        members = _FAST.decode(text)
        raw = [(name, bytes(member)) for name, member in members.items()]
        # Of a key that occurs twice, `raw` has only the last member. Then the text is longer than the
        # members.
        if len(text) == sum(len(name.encode()) + len(member) + 4 for name, member in raw) + (1 if raw else 2):
            return tuple((name, _text(member)) for name, member in raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # Text that JSON's own decoder refuses, too, or half of a surrogate pair, or bytes that are not UTF-8
        pass
    return _members_one_by_one(text)


def _text(member: bytes) -> str | bytes:
    return _STRING.decode(member) if member.startswith(b'"') else member


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Numbers stay text, which keeps them from being bounded or rounded; it is not looked at anyway.
_DECODER: Any = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse)
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once
_string: Callable[[str, int], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]


def _members_one_by_one(data: bytes) -> Members:
    try:
        text = data.decode()
        if not text.startswith("{"):
            _scan(text, 0)
            raise NotAnObject("is not a JSON object")
        return tuple(_members(text))
    except NotAnObject:
        raise
    except StopIteration as error:
        raise NotAnObject(f"is not JSON: a value is missing at character {error.value}") from None
    except RecursionError:
        raise NotAnObject("is not JSON: nested too deeply") from None
    except ValueError as error:
        raise NotAnObject(f"is not JSON: {error}") from None


def _members(text: str) -> list[tuple[str, str | bytes]]:
    members: list[tuple[str, str | bytes]] = []
    at = _skip(text, 1)
    closing = text[at : at + 1] == "}"
    while not closing:
        name, at = _string(text, _expect(text, at, '"'))
        begin = _skip(text, _expect(text, _skip(text, at), ":"))
        value, end = _scan(text, begin)
        members.append((name, value if text[begin] == '"' else text[begin:end].encode()))
        at = _skip(text, end)
        closing = text[at : at + 1] == "}"
        if not closing:
            at = _skip(text, _expect(text, at, ","))
    if at + 1 != len(text):
        raise ValueError(f"more text after the object, at character {at + 1}")
    return members


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _expect(text: str, at: int, character: str) -> int:
    if text[at : at + 1] != character:
        raise ValueError(f"expected {character} at character {at}")
    return at + 1
