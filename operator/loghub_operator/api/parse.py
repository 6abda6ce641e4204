"""Parse a resource, or report everything that is wrong with it, worded as by the apiserver."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup, Spec
from loghub_operator.api.validation import RULE_ERROR, Immutable


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``path`` such as ``spec.scaling``."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidResourceError(ValueError):
    """The object is invalid; `problems` has every reason, in the order of the fields."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def parse_resource(
    document: Mapping[str, Any], *, old: LogHubConsumerGroup | None = None
) -> LogHubConsumerGroup:
    """The object; with ``old``, checks the immutable fields too. Raises `InvalidResourceError`."""
    written = {key: value for key, value in document.items() if key != "status"}
    try:
        resource = LogHubConsumerGroup.model_validate_json(json.dumps(written, default=str))
    except ValidationError as error:
        raise InvalidResourceError(
            tuple(_joined(problem for detail in error.errors() for problem in _problems(detail)))
        ) from None
    problems = () if old is None else tuple(_changed(old.spec, resource.spec))
    if problems:
        raise InvalidResourceError(problems)
    return resource.model_copy(update={"status": parse_status(document.get("status"))})


def resources_in(text: str) -> tuple[dict[str, Any], ...]:
    """The documents of this kind in a YAML file; others, such as a Secret, are left to kubectl.

    Raises `InvalidResourceError` if the text is not YAML.
    """
    return documents_in(text, API_VERSION.split("/")[0], KIND)


def documents_in(text: str, group: str, kind: str) -> tuple[dict[str, Any], ...]:
    """The documents of a kind, of any version of its group ("v1" for the core group)."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise InvalidResourceError((Problem("(file)", f"not YAML: {error}"),)) from None
    return tuple(
        document
        for document in documents
        if isinstance(document, dict)
        and document.get("kind") == kind
        and str(document.get("apiVersion", "")).split("/")[0] == group
    )


def parse_status(document: object) -> Status:
    """The last reported status; a status of another version that this one cannot parse counts as none."""
    try:
        return Status.model_validate_json(json.dumps(document or {}))
    except ValidationError:
        return Status()


def _problems(detail: ErrorDetails) -> tuple[Problem, ...]:
    path = _path(detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            return (Problem(path, f'unknown field "{path}"'),)
        case "missing":
            return (Problem(path, "Required value"),)
        case kind if kind == RULE_ERROR:
            failed = detail["ctx"]["failed"]
            return tuple(Problem(f"{path}.{field}" if field else path, text) for field, text in failed)
        case _:
            given = json.dumps(detail["input"], default=str)
            return (Problem(path, f"Invalid value: {given}: {detail['msg']}"),)


def _joined(problems: Iterable[Problem]) -> Iterator[Problem]:
    """One problem where every type of a union rejects the value."""
    messages: dict[str, list[str]] = {}
    for problem in problems:
        messages.setdefault(problem.path, []).append(problem.message)
    for path, texts in messages.items():
        first, *others = texts
        start = first.rpartition(": ")[0]
        if others and start and all(other.startswith(f"{start}: ") for other in others):
            yield Problem(path, " or ".join((first, *(other[len(start) + 2 :] for other in others))))
        else:
            yield from (Problem(path, message) for message in texts)


def _path(location: tuple[int | str, ...]) -> str:
    """Without the types of a union, which pydantic counts as parts."""
    return ".".join(str(part) for part in location if not str(part).startswith("constrained-")) or "(object)"


def _changed(old: Spec, new: Spec) -> Iterator[Problem]:
    names = {to_camel(name): name for name in Spec.model_fields}
    for rule in Spec.IMMUTABLE:
        assert isinstance(rule, Immutable)
        if getattr(old, names[rule.field]) != getattr(new, names[rule.field]):
            yield Problem(f"spec.{rule.field}", rule.message)
