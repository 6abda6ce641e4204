"""The kinds of value that several parts of the spec share.

What for: a name or a time span is bounded the same wherever it is asked for. What it must not
know: who asks. Read next: `loghub_operator.api.patterns` (the spellings),
`loghub_operator.api.v1alpha1`.
"""

from collections import Counter
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from loghub_operator.api import patterns

MAX_REPLICAS = 1000

Seconds = Annotated[int, Field(ge=1, le=86_400)]
Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=patterns.OBJECT_NAME)]
ProjectName = Annotated[str, Field(min_length=3, max_length=63, pattern=patterns.PROJECT)]
LogstoreName = Annotated[str, Field(min_length=2, max_length=63, pattern=patterns.LOGSTORE)]
GroupName = Annotated[str, Field(min_length=2, max_length=63, pattern=patterns.CONSUMER_GROUP)]
RelativePath = Annotated[str, Field(min_length=1, max_length=512, pattern=patterns.RELATIVE_PATH)]
Quantity = Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=patterns.QUANTITY)]


def once(by: str = "") -> AfterValidator:
    """No two items alike (in ``by``), as the apiserver has it of a list that is a set (a map)."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        counted = Counter(getattr(item, by) if by else item for item in items)
        if twice := [str(key) for key, count in counted.items() if count > 1]:
            raise PydanticCustomError("duplicate", "Duplicate value: {values}", {"values": ", ".join(twice)})
        return items

    return AfterValidator(check)
