"""Messages of every API and version: strategies made of the annotations, and values as plain Python."""

from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct

from loghub.kafka.wire.apis import APIS, Api
from loghub.kafka.wire.fields import NullSince, Versions, WireType

INTEGERS = {WireType.INT8: 8, WireType.INT16: 16, WireType.INT32: 32, WireType.INT64: 64}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def every_version() -> Iterator[tuple[Api, int]]:
    """Each API in each of its versions."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            yield api, version


def ids(value: object) -> str | None:
    return value.key.name.lower() if isinstance(value, Api) else None


def fields_of(message: type[Struct], version: int) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Name -> type and notes of the fields that the version has."""
    result = {}
    for name, hint in get_type_hints(message, include_extras=True).items():
        plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if all(note.first <= version <= note.last for note in notes if isinstance(note, Versions)):
            result[name] = plain, tuple(notes)
    return result


@cache
def messages(message: type[Struct], version: int, least: int = 0) -> st.SearchStrategy[Any]:
    """Values of a class that the version can carry; fields that it lacks keep their default. Arrays have
    ``least`` elements or more."""
    parts = {
        name: _values(plain, notes, version, least)
        for name, (plain, notes) in fields_of(message, version).items()
    }
    return st.builds(message, **parts)


def _values(plain: Any, notes: tuple[Any, ...], version: int, least: int) -> st.SearchStrategy[Any]:
    options = set(get_args(plain)) if get_origin(plain) is not tuple and get_args(plain) else {plain}
    nullable = NoneType in options and all(n.version <= version for n in notes if isinstance(n, NullSince))
    kinds = [note for note in notes if isinstance(note, WireType)]
    strategy = _scalars(kinds[0]) if kinds else _nested((options - {NoneType}).pop(), version, least)
    return st.none() | strategy if nullable else strategy


def _scalars(kind: WireType) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kind is WireType.BOOL:
        return st.booleans()
    return TEXTS if kind is WireType.STRING else st.binary(max_size=20)


def _nested(plain: Any, version: int, least: int) -> st.SearchStrategy[Any]:
    if get_origin(plain) is not tuple:
        return messages(plain, version, least)
    inner, *notes = (
        get_args(get_args(plain)[0]) if get_origin(get_args(plain)[0]) is Annotated else (get_args(plain)[0],)
    )
    return st.lists(_values(inner, tuple(notes), version, least), min_size=least, max_size=3).map(tuple)


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
