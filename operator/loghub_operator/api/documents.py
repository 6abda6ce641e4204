"""A user's file as the API server would get it from `kubectl apply`: documents that consist of what JSON has.

kubectl's YAML has no dates and no numbers to base 60, and accepts no key twice. So `released: 2026-11-26` and
`at: 12:30` are texts here as well, and a value that JSON does not have is refused as there.
"""

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

from loghub_operator.api.parse import InvalidResourceError, Problem
from loghub_operator.api.v1alpha1 import API_VERSION, KIND

# A file has at most 3 MiB (`loghub_cli.up.manifest`), but an alias of YAML repeats what it names.
_MAX_CHARACTERS = 4 << 20
_TEXT_HERE = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
_TEXT = "tag:yaml.org,2002:str"
_TO_BASE_60 = re.compile(r"[-+]?[0-9][0-9_:.]*")
_Pairs = list[tuple[str, Any]]


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: tuple[bool, bool]) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if kind is not yaml.ScalarNode or value is None or not implicit[0]:
            return tag
        return _TEXT if tag in _TEXT_HERE or (":" in value and _TO_BASE_60.fullmatch(value)) else tag

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f'key "{key.value}" already set in map', key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def resources_in(text: str) -> tuple[dict[str, Any], ...]:
    """The LogHubConsumerGroups in a YAML file; other documents, such as a Secret, are left to kubectl.

    Raises `InvalidResourceError` if the text is not YAML, or has what no API server accepts.
    """
    return documents_in(text, API_VERSION.split("/")[0], KIND)


def documents_in(text: str, group: str, kind: str) -> tuple[dict[str, Any], ...]:
    """The documents of a kind, of any version of its group ("v1" for the core group), also within a
    `List`."""
    return tuple(
        _as_json(document)
        for document in _items(_loaded(text))
        if isinstance(document, dict)
        and document.get("kind") == kind
        and str(document.get("apiVersion", "")).split("/")[0] == group
    )


def _loaded(text: str) -> list[Any]:
    try:
        if text.lstrip("\ufeff \t\r\n").startswith("{"):  # JSON may be indented with tabs, YAML may not
            return [json.loads(text.lstrip("\ufeff"), object_pairs_hook=_unique)]
    except (ValueError, RecursionError):
        pass  # a flow mapping of YAML, or a mistake, for which YAML has the better words
    try:
        return list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise _invalid(f"not YAML: {error}") from None


def _unique(pairs: _Pairs) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def _items(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        items = (
            document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
        )
        yield from items if isinstance(items, list) else (document,)


def _as_json(document: dict[str, Any]) -> dict[str, Any]:
    """The document with nothing but what JSON has. Raises `InvalidResourceError`."""
    parts: list[str] = []
    size = 0
    try:
        for part in json.JSONEncoder(allow_nan=False, ensure_ascii=False).iterencode(document):
            size += len(part)
            if size > _MAX_CHARACTERS:
                raise _invalid("too large, perhaps by aliases of YAML")
            parts.append(part)
        text = "".join(parts)
        text.encode()  # not half of a character
        result: dict[str, Any] = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidResourceError):
            raise
        raise _invalid(f"a value that JSON does not have: {error}") from None
    if "\\u0000" in text and _has_nul(result):
        raise _invalid(
            "a character U+0000 in a text, which no process can have in its environment or its code"
        )
    for name in ("metadata", "data"):
        if not isinstance(result.get(name, {}), dict | None):
            raise InvalidResourceError(
                (Problem(name, f"Invalid value: {json.dumps(result[name])}: must be an object"),)
            )
    return result


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _invalid(message: str) -> InvalidResourceError:
    return InvalidResourceError((Problem("(file)", message),))
