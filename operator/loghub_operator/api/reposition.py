"""The part of the spec that moves the checkpoints of a group: ``spec.reposition``.

What for: an order that is carried out once for each nonce. What it must not know: how. Read
next: `loghub_operator.api.v1alpha1`, `loghub_operator.api.status` (how far it is).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.fields import ObjectName, once
from loghub_operator.api.rules import ApiModel, Rule
from loghub_operator.api.status import MAX_SHARDS


class Reposition(ApiModel):
    """Move checkpoints: the workers are stopped, the old ones kept for undo, the new ones forced.

    An order on an object that is there; one that the object is made with is not carried out.
    """

    RULES: ClassVar = (
        Rule(
            cel="(self.to == 'time') == has(self.time)",
            message="time must be given with to: time, and only then",
            holds=lambda self: (self.to == "time") == (self.time is not None),
        ),
        Rule(
            field="time",
            cel="!has(self.time) || "
            f"(self.time.matches({patterns.cel(patterns.RFC3339)}) && "
            "timestamp(self.time) > timestamp('1970-01-01T00:00:00Z'))",
            message="time must be a time such as 2026-01-31T08:00:00Z",
            holds=lambda self: self.time is None or patterns.unix_s(self.time) > 0,
        ),
        Rule(
            cel="(self.to == 'checkpoints') == has(self.checkpointsFrom)",
            message="checkpointsFrom must be given with to: checkpoints, and only then",
            holds=lambda self: (self.to == "checkpoints") == (self.checkpoints_from is not None),
        ),
    )

    to: Literal["begin", "end", "time", "checkpoints"] = Field(description="Where the group goes on.")
    time: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="With to: time, an RFC 3339 time of receipt."
    )
    checkpoints_from: ObjectName | None = Field(
        default=None,
        description="With to: checkpoints, a ConfigMap of this namespace from shard number to cursor; "
        "the one that an earlier reposition left undoes it.",
    )
    shards: (
        Annotated[
            tuple[Annotated[int, Field(ge=0)], ...],
            Field(min_length=1, max_length=MAX_SHARDS, json_schema_extra={"x-kubernetes-list-type": "set"}),
            once(),
        ]
        | None
    ) = Field(default=None, description="Only these shards; default: all.")
    nonce: Annotated[str, Field(min_length=1, max_length=40, pattern=patterns.NONCE)] = Field(
        description="Carried out once for each nonce; change it to move the checkpoints again. An order that "
        "stands there when the object is made counts as done; where a new group begins is said by "
        "initialPosition."
    )
