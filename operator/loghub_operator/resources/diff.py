"""Compares a stored object with what the operator wrote, and returns the paths of the fields that differ.

Only the fields that the operator writes count: defaults of the API server, and fields that other clients
added, are not compared. Quantities are compared by value, since the API server writes 1024Mi as 1Gi.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from loghub_operator.api.labels import ANNOTATION_LEFT_TO_OTHERS
from loghub_operator.model.memory import FieldPath, ObjectName
from loghub_operator.model.revision import Document
from loghub_operator.resources.strategic_merge import KEYS, numbered

_LIST_KEYS = {**KEYS, "ownerReferences": "uid"}
# A number with an exponent has no unit: "1E" is 10^18, and "1E3" is 1000.
_AMOUNT = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|(n|u|m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei))?"
)
_UNITS = {
    None: Decimal(1), "n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_NOT_COMPARED = ("apiVersion", "kind")
# Maps that the API treats as one value: an additional key changes what the operator wrote.
_WHOLE = ("selector", "nodeSelector")


def changed_fields(ours: Document, theirs: Document | None) -> tuple[FieldPath, ...]:
    """Fields such as ``StatefulSet access spec.template.spec.containers[worker].image``, in order."""
    return tuple(differences(ours, theirs))


def differences(ours: Document, theirs: Document | None) -> dict[FieldPath, Any]:
    """The fields that differ, with the values that are there instead."""
    name = object_name(ours)
    if theirs is None:
        return {FieldPath(object=name, path=""): None}
    compared = {key: value for key, value in ours.items() if key not in _NOT_COMPARED}
    return {FieldPath(object=name, path=path): value for path, value in _differing(compared, theirs, "")}


def fingerprint(differing: Mapping[FieldPath, Any]) -> str:
    """A short text that is equal for the same differences, such as the differences before and after a restart
    of the operator; "" if there are none."""
    if not differing:
        return ""
    text = json.dumps(sorted((field.path, value) for field, value in differing.items()), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def left_to_others(stored: Document | None) -> str:
    """The fingerprint that the operator recorded when it wrote the object last; "" if it left nothing."""
    annotations = (stored or {"metadata": {}})["metadata"].get("annotations") or {}
    return str(annotations.get(ANNOTATION_LEFT_TO_OTHERS, ""))


def object_name(document: Document) -> ObjectName:
    return ObjectName(kind=document["kind"], name=document["metadata"]["name"])


def _differing(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if path.rpartition(".")[2] in _WHOLE and theirs.keys() - ours.keys():
            yield path, theirs
        for key, value in ours.items():
            yield from _differing(value, theirs.get(key), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list):
        yield from _differing_lists(ours, theirs, path)
    elif not _same(ours, theirs):
        yield path, theirs


def _differing_lists(ours: list[Any], theirs: list[Any], path: str) -> Iterator[tuple[str, Any]]:
    key = _LIST_KEYS.get(path.rpartition(".")[2])
    if key is not None and all(isinstance(one, dict) and key in one for one in (*ours, *theirs)):
        by_name = dict(numbered(theirs, key))
        for name, item in numbered(ours, key):
            yield from _differing(item, by_name.get(name), f"{path}[{item[key]}]")
    elif len(ours) != len(theirs) or any(
        list(_differing(mine, other, "")) for mine, other in zip(ours, theirs, strict=True)
    ):
        yield path, theirs


def _same(ours: Any, theirs: Any) -> bool:
    if ours == theirs:
        return True
    if theirs is None:  # the API server does not store empty values
        return ours in ({}, [], "", False, 0)
    mine, other = _amount(ours), _amount(theirs)
    return mine is not None and mine == other


def _amount(value: Any) -> Decimal | None:
    match = _AMOUNT.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    return None if match is None else Decimal(match[1]).scaleb(int(match[2] or 0)) * _UNITS[match[3]]


def replicas_taken(theirs: Document, manager: str) -> bool:
    """Another client set the number of replicas: ``manager`` no longer owns the field it applied."""
    managed = theirs["metadata"].get("managedFields") or ()
    applied = [one for one in managed if (one.get("manager"), one.get("operation")) == (manager, "Apply")]
    fields = [one.get("fieldsV1", {}) for one in applied if not one.get("subresource")]
    return bool(fields) and not any("f:replicas" in one.get("f:spec", {}) for one in fields)
