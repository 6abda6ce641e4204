"""The types of value that several parts of the resource share, each bounded in one place."""

from collections import Counter
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from loghub.wire import names
from loghub.wire.names import NameRule
from loghub_operator.api import patterns

MAX_REPLICAS = 1000


def _name(rule: NameRule) -> Any:
    """A field with a name of the log service."""
    return Field(min_length=rule.shortest, max_length=rule.longest, pattern=f"^{rule.pattern}$")


Seconds = Annotated[int, Field(ge=1, le=86_400)]
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.OBJECT_NAME)]
ProjectName = Annotated[str, _name(names.PROJECT)]
LogstoreName = Annotated[str, _name(names.LOGSTORE)]
GroupName = Annotated[str, _name(names.CONSUMER_GROUP)]
RelativePath = Annotated[str, Field(min_length=1, max_length=512, pattern=patterns.RELATIVE_PATH)]
Quantity = Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=patterns.QUANTITY)]


def seconds_of(seconds: int, milliseconds: int | None) -> float:
    """An interval that has a field in seconds, and one in milliseconds that takes precedence."""
    return float(seconds) if milliseconds is None else milliseconds / 1000


def _is_date_time(value: str) -> str:
    try:
        patterns.unix_s(value)
    except ValueError:
        raise PydanticCustomError(
            "date_time", "must be of type date-time (RFC 3339), for example 2026-01-31T08:00:00Z"
        ) from None
    return value


# Of the status. The API server accepts other spellings of a date-time too, in a status that was edited.
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}), AfterValidator(_is_date_time)]
Timestamp = Annotated[
    str, Field(max_length=64, json_schema_extra={"format": "date-time"}), AfterValidator(_is_date_time)
]


def once(by: str = "") -> AfterValidator:
    """No two items with the same value (of ``by``), as in a list that is a set (a map) to the apiserver."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        counted = Counter(getattr(item, by) if by else item for item in items)
        if repeated := [str(key) for key, count in counted.items() if count > 1]:
            values = {"values": ", ".join(repeated)}
            raise PydanticCustomError("duplicate", "Duplicate value: {values}", values)
        return items

    return AfterValidator(check)
