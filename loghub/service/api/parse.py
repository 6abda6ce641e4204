"""Reads values from queries and JSON bodies and checks their bounds.

All actions use these functions, so that invalid input is rejected with the same messages everywhere.
"""

from typing import Any

import msgspec

from loghub.service.api_errors import failure
from loghub.service.messages import Request
from loghub.wire import names
from loghub.wire.errors import Code

_MAX_DIGITS = 18


def json_object(request: Request) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(request.body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last: nested too deeply
        raise failure(Code.JSON_INFO_INVALID, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise failure(Code.JSON_INFO_INVALID, "the body is not a JSON object")
    return value


def shard_list(request: Request) -> frozenset[int]:
    """The body of a heartbeat: the shards that the consumer still works on."""
    try:
        return frozenset(msgspec.json.decode(request.body or b"[]", type=list[int]))
    except msgspec.DecodeError as error:
        raise failure(Code.JSON_INFO_INVALID, f"the body is not an array of shard ids: {error}") from error


def cursors_of_shards(request: Request) -> dict[int, str]:
    """The body of an extension: an object of shards and their cursors."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=dict[int, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the body is not an object of shard ids and cursors: {error}"
        raise failure(Code.JSON_INFO_INVALID, message) from error


def string(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a string")
    return value


def integer(fields: dict[str, Any], name: str, *, least: int, most: int, default: int | None = None) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a number from {least} to {most}")
    return value


def boolean(fields: dict[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise failure(Code.PARAMETER_INVALID, f"{name} must be true or false")
    return value


def number_query(request: Request, name: str, *, least: int, most: int, default: int | None = None) -> int:
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    value = None if text is None else decimal(text)
    if value is None or not least <= value <= most:
        raise failure(Code.PARAMETER_INVALID, f"{name} must be a number from {least} to {most}")
    return value


def decimal(text: str) -> int | None:
    """The value of a text of digits below 10^18, otherwise None. A longer text is not converted, since the
    conversion is slow or fails."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def consumer(request: Request) -> str:
    return names.CONSUMER.check(request.query.get("consumer", ""))
