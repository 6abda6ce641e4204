"""Messages of every API and version: random ones by the annotations, and values as plain Python."""

from collections.abc import Iterator
from functools import cache
from random import Random
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct

from loghub_service.kafka.wire.apis import APIS, Api
from loghub_service.kafka.wire.codec import NullSince, Versions, WireType
from tests.suite.seed import of_run

INTEGERS = {WireType.INT8: 8, WireType.INT16: 16, WireType.INT32: 32, WireType.INT64: 64}
CHARACTERS = 'ab0-_. \0\n"\u00e9\u20ac\U0001f600'
MAX_ELEMENTS = 3
# The variety is in the number of messages and versions.
EXAMPLES = pytest.mark.parametrize("examples", [6, pytest.param(500, marks=pytest.mark.deep)])


def dice_of(kind: type[Struct], version: int) -> Random:
    """The same in each run, but for the slices of `make check-deep`."""
    return Random(f"{kind.__name__} {version} {of_run()}")


def every_version() -> Iterator[tuple[Api, int]]:
    """Each API in each of its versions."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            yield api, version


def ids(value: object) -> str | None:
    return value.key.name.lower() if isinstance(value, Api) else None


@cache
def fields_of(message: type[Struct], version: int) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Name -> type and notes of the fields that the version has."""
    result = {}
    for name, hint in get_type_hints(message, include_extras=True).items():
        plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if all(note.first <= version <= note.last for note in notes if isinstance(note, Versions)):
            result[name] = plain, tuple(notes)
    return result


def a_message(kind: type[Struct], version: int, dice: Random, minimum: int = 0) -> Any:
    """A value of the class that the version can carry; fields that it lacks keep their default. Arrays have
    ``least`` elements or more."""
    return kind(
        **{
            name: _value(plain, notes, version, dice, minimum)
            for name, (plain, notes) in fields_of(kind, version).items()
        }
    )


def some_messages(kind: type[Struct], version: int, count: int) -> Iterator[Any]:
    """So many. Each nested field is in the first one."""
    dice = dice_of(kind, version)
    for number in range(count):
        yield a_message(kind, version, dice, minimum=int(number == 0))


def _value(plain: Any, notes: tuple[Any, ...], version: int, dice: Random, minimum: int) -> Any:
    options = set(get_args(plain)) if get_origin(plain) is not tuple and get_args(plain) else {plain}
    nullable = NoneType in options and all(n.version <= version for n in notes if isinstance(n, NullSince))
    if nullable and not minimum and dice.random() < 0.3:
        return None
    kinds = [note for note in notes if isinstance(note, WireType)]
    if kinds:
        return _scalar(kinds[0], dice)
    return _nested((options - {NoneType}).pop(), version, dice, minimum)


def a_text(dice: Random) -> str:
    return "".join(dice.choices(CHARACTERS, k=dice.randrange(12)))


def _scalar(kind: WireType, dice: Random) -> Any:
    if kind in INTEGERS:
        end = 1 << (INTEGERS[kind] - 1)
        return dice.choice((-end, -1, 0, 1, end - 1, *(dice.randrange(-end, end) for _ in range(5))))
    if kind is WireType.BOOL:
        return dice.random() < 0.5
    if kind is WireType.STRING:
        return a_text(dice)
    return dice.randbytes(dice.randrange(20))


def _nested(plain: Any, version: int, dice: Random, minimum: int) -> Any:
    if get_origin(plain) is not tuple:
        return a_message(plain, version, dice, minimum)
    inner, *notes = (
        get_args(get_args(plain)[0]) if get_origin(get_args(plain)[0]) is Annotated else (get_args(plain)[0],)
    )
    count = dice.randint(minimum, MAX_ELEMENTS)
    return tuple(_value(inner, tuple(notes), version, dice, minimum) for _ in range(count))


def as_dict(value: Any, version: int) -> Any:
    """A message as dictionaries and lists, with the fields of the version only."""
    if isinstance(value, Struct):
        return {name: as_dict(getattr(value, name), version) for name in fields_of(type(value), version)}
    if isinstance(value, tuple):
        return [as_dict(each, version) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def flat(value: Any) -> Any:
    """What `as_dict` returns without its names: the fields in their order on the wire.

    A struct in a struct, and one of a single field, leaves no bytes of its own, so it is opened.
    """
    if isinstance(value, list):
        return [flat(each) for each in value]
    if not isinstance(value, dict | tuple):
        return value
    parts: list[Any] = []
    for each in value.values() if isinstance(value, dict) else value:
        opened = flat(each)
        parts += opened if isinstance(opened, tuple) else (opened,)
    return parts[0] if len(parts) == 1 else tuple(parts)
