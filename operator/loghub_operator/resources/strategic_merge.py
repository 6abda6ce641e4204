"""Merges pod templates over the operator's, like a strategic merge patch: the platform's
(`loghub_operator.settings.WorkerDefaults`), then the user's, ``spec.worker.podTemplate``.

Maps are merged key by key, and null removes a key; ``$patch: replace`` in a map replaces the operator's map,
and ``$patch: delete`` empties it (an edit by ``kubectl apply`` stores no null). Lists of named items are
merged by the key that names them (`KEYS`, as in the API's patch merge keys); the same directives in such an
item replace or remove the operator's item. Of a volume only the overlay's keys stay, and another handler of a
probe or lifecycle hook replaces the operator's. Every other list is replaced. Fields that group membership
depends on cannot be overridden. Nothing is rejected or dropped here: the API server rejects what is invalid,
such as two containers with one name, with its own message.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from loghub_operator.model.revision import Document

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}
# Of an item in these lists only the overlay's keys stay (retainKeys in the API): a volume has one source.
RETAIN_KEYS = ("volumes",)
HANDLERS = {"exec", "httpGet", "tcpSocket", "grpc", "sleep"}  # of a probe or a lifecycle hook
_DIRECTIVE = "$patch"


def apply_pod_template(
    template: Document, overlays: Iterable[Document | None], *, container: str, volumes: set[str]
) -> Document:
    """The operator's template with the overlays, of which a later one overrides an earlier one.

    The operator keeps the environment, ports and mounts of
    ``container``, these ``volumes``, its labels and annotations, and its grace period as a lower bound.
    """
    applied = [overlay for overlay in overlays if overlay]
    if not applied:
        return template
    result: Document = template
    for overlay in applied:
        result = merged(result, overlay)
    _keep_metadata(result, template)
    spec, ours = result.get("spec"), template["spec"]
    if isinstance(spec, dict):
        _keep_grace(spec, ours)
        _keep(spec, ours, "volumes", volumes)
        _keep_container(spec, ours, container)
    return result


def merged(ours: Any, theirs: Any, *, key: str = "") -> Any:
    """``theirs`` over ``ours``; ``key`` is the field that contains both."""
    if isinstance(theirs, dict) and (isinstance(ours, dict) or _DIRECTIVE in theirs):
        return _merged_maps(ours if isinstance(ours, dict) else {}, theirs)
    if isinstance(ours, list) and isinstance(theirs, list) and key in KEYS:
        return _merged_lists(ours, theirs, key)
    return theirs


def _merged_maps(ours: Document, theirs: Document) -> Document:
    match theirs.get(_DIRECTIVE):
        case "delete":
            return {}
        case "replace":
            return _plain(theirs)
    ours = _without_other_alternatives(ours, theirs)
    both = {key: merged(ours.get(key), value, key=key) for key, value in theirs.items() if value is not None}
    unchanged = {key: value for key, value in ours.items() if key not in theirs}
    return {**unchanged, **both}


def _without_other_alternatives(ours: Document, theirs: Document) -> Document:
    """A probe and a lifecycle hook have one handler: another one replaces the operator's."""
    if not HANDLERS & theirs.keys() - {key for key, value in theirs.items() if value is None}:
        return ours
    return {key: value for key, value in ours.items() if key not in HANDLERS or key in theirs}


def _merged_lists(ours: list[Any], theirs: list[Any], field: str) -> list[Any]:
    """The operator's items in their order, then the new ones of the overlay."""
    key = KEYS[field]
    wanted = dict(numbered(theirs, key))
    unchanged = [_element(one, wanted.pop(name, None), field) for name, one in numbered(ours, key)]
    new = (_element(None, one, field) for one in wanted.values())
    return [one for one in (*unchanged, *new) if one is not None]


def numbered(elements: list[Any], key: str) -> Iterator[tuple[tuple[Any, int], Any]]:
    """Each item with its name and the number of earlier items with that name: of two items that share a name
    neither is lost.
    """
    before: Counter[Any] = Counter()
    for element in elements:
        name = _named(element, key)
        yield (name, before[name]), element
        before[name] += 1


def _named(element: Any, key: str) -> Any:
    """What names the item; an item without a name equals no other."""
    name = element.get(key) if isinstance(element, dict) else None
    return name if isinstance(name, str | int) else id(element)


def _element(ours: Any, theirs: Any, field: str) -> Any:
    """None: the item is removed."""
    if theirs is None:
        return ours
    if not isinstance(theirs, dict):
        return theirs
    match theirs.get(_DIRECTIVE):
        case "delete":
            return None
        case "replace":
            return _plain(theirs)
    if ours is None:
        return _plain(theirs)
    if field in RETAIN_KEYS and theirs.keys() - {KEYS[field], _DIRECTIVE}:
        ours = {key: value for key, value in ours.items() if key in theirs}
    return merged(ours, _plain(theirs))


def _plain(theirs: Document) -> Document:
    return {key: value for key, value in theirs.items() if key != _DIRECTIVE}


def _keep_metadata(result: Document, template: Document) -> None:
    metadata = result.get("metadata")
    if not isinstance(metadata, dict):
        return
    for key, ours in template["metadata"].items():
        theirs = metadata.get(key)
        metadata[key] = {**theirs, **ours} if isinstance(theirs, dict) else ours
    for key in ("name", "namespace", "generateName"):
        metadata.pop(key, None)


def _keep_grace(spec: Document, ours: Document) -> None:
    """A grace period shorter than the drain would kill a worker in the middle of it."""
    grace_s, minimum = spec.get("terminationGracePeriodSeconds"), ours["terminationGracePeriodSeconds"]
    if not isinstance(grace_s, int) or grace_s < minimum:
        spec["terminationGracePeriodSeconds"] = minimum


def _keep_container(spec: Document, ours: Document, name: str) -> None:
    our_container = next(one for one in ours["containers"] if one["name"] == name)
    listed = spec.get("containers")
    given_containers = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    theirs = next((one for one in given_containers if one.get("name") == name), None)
    if theirs is None:
        spec["containers"] = [our_container, *given_containers]
        return
    for field in ("env", "ports", "volumeMounts"):
        _keep(theirs, our_container, field, {one[KEYS[field]] for one in our_container[field]})


def _keep(result: Document, ours: Document, field: str, names: set[Any]) -> None:
    """The operator's version of these list items is kept whole."""
    key, items = KEYS[field], result.get(field)
    if items is not None and not isinstance(items, list):
        return
    others = [one for one in items or () if _named(one, key) not in names]
    result[field] = [*(one for one in ours[field] if one[key] in names), *others]
