"""Rules that a schema cannot express: one text for the API server's CEL and for the operator's own check.

Each `Rule` has the CEL expression for the CRD, the message, and the same check in Python, so that `loghub up`
rejects what `kubectl apply` rejects, with the same message.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

RULE_ERROR = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``holds(self)`` is the rule of ``cel`` in Python; the message is shown at ``field``."""

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""

    def as_cel(self) -> dict[str, str]:
        """One entry of ``x-kubernetes-validations``."""
        path = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **path}


@dataclass(frozen=True, slots=True, kw_only=True)
class Immutable:
    """A field that must not change once the object exists; an optional one must not be added or removed.

    ``same(old, new)`` and ``same_cel`` say which values count as unchanged, if more than equal ones do.
    """

    field: str
    optional: bool = False
    same: Callable[[Any, Any], bool] = operator.eq
    same_cel: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        if not self.message:
            message = f"{self.field} is immutable; create another LogHubConsumerGroup instead"
            object.__setattr__(self, "message", message)

    def as_cel(self) -> dict[str, str]:
        """One entry of ``x-kubernetes-validations``; ``oldSelf`` makes it a transition rule."""
        name = self.field
        same = self.same_cel or f"self.{name} == oldSelf.{name}"
        if self.optional:
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        return {"rule": same, "message": self.message, "fieldPath": f".{name}"}


def _add_rules(schema: dict[str, Any], model: type["ApiModel"]) -> None:
    rules = [rule.as_cel() for rule in model.RULES] + [rule.as_cel() for rule in model.IMMUTABLE]
    if rules:
        schema["x-kubernetes-validations"] = rules


class ApiModel(BaseModel):
    """A part of the resource: camelCase outside, frozen and strict; an unknown field is an error."""

    model_config = ConfigDict(
        alias_generator=lambda name: to_camel(name.rstrip("_")),
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra=_add_rules,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    IMMUTABLE: ClassVar[tuple[Immutable, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self) -> "ApiModel":
        failed = [(rule.field, rule.message) for rule in self.RULES if not rule.holds(self)]
        if failed:
            raise PydanticCustomError(RULE_ERROR, "a rule does not hold", {"failed": failed})
        return self

    def to_dict(self) -> dict[str, Any]:
        """The model as it stands in the CR: camelCase, without the fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
