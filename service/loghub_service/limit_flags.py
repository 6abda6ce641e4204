"""Limits that the command line can change: the field of a limit carries its bounds and its help, and its flag
is derived from them.

A flag is one number of a class of limits, or several that must grow together. A limit that no operator of the
service has a reason to change, such as the time for a head, has no flag.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_type_hints

from msgspec import Meta

T = TypeVar("T")
_FLAG, _UNIT = "flag", "unit"


def flag(name: str, minimum: int, maximum: int, description: str, *, unit: int = 1) -> Meta:
    """The annotation of a field of limits; ``unit`` is the field's value for 1 of the flag's number."""
    return Meta(
        ge=minimum * unit, le=maximum * unit, description=description, extra={_FLAG: name, _UNIT: unit}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlag:
    """One flag, which sets ``fields`` of ``owner``. Its bounds and its default are in the flag's unit."""

    name: str
    fields: tuple[str, ...]
    owner: type[Any]
    meta: Meta

    @property
    def unit(self) -> int:
        return int((self.meta.extra or {})[_UNIT])

    @property
    def minimum(self) -> int:
        return int(self.meta.ge or 0) // self.unit

    @property
    def maximum(self) -> int:
        return int(self.meta.le or 0) // self.unit

    @property
    def default(self) -> int:
        value: int = getattr(self.owner(), self.fields[0])
        return value // self.unit

    @property
    def help(self) -> str:
        text = self.meta.description or ""
        return f"{text[:1].upper()}{text[1:]}; from {self.minimum} to {self.maximum}."

    @property
    def argument(self) -> str:
        """The flag's name in the form of a Python argument."""
        return self.name.removeprefix("--").replace("-", "_")


def flags_of(owner: type[Any]) -> tuple[LimitFlag, ...]:
    """The flags of a class of limits, in the order of its fields."""
    flags: dict[str, LimitFlag] = {}
    for field, hint in get_type_hints(owner, include_extras=True).items():
        for meta in getattr(hint, "__metadata__", ()):
            name = meta.extra[_FLAG]
            fields = (*flags[name].fields, field) if name in flags else (field,)
            flags[name] = LimitFlag(name=name, fields=fields, owner=owner, meta=meta)
    return tuple(flags.values())


def chosen(limits: T, values: Mapping[str, Any]) -> T:
    """The limits with the values of the command line, by the flags' arguments."""
    fields = {
        field: values[one.argument] * one.unit for one in flags_of(type(limits)) for field in one.fields
    }
    return replace(limits, **fields)  # type: ignore[type-var]
