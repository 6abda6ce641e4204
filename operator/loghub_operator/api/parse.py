"""Parse a resource, or report everything that is wrong with it, worded as by the apiserver.

A user's file is read strictly, since an unknown field is most likely a misspelt one. An object that an API
server returns was validated by the CRD, which may be of another release: fields that this one does not know
are ignored. Of a status, and of an object that is being deleted, every part that can be read is read.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from loghub.near_names import did_you_mean
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup, Spec
from loghub_operator.api.validation import RULE_ERROR, Immutable

# The fields of a spec that a deletion needs: which group, with which key, and what happens to it.
_NAMES_OF_GROUP = (
    "endpoint",
    "project",
    "logstore",
    "consumerGroup",
    "subscription",
    "credentialsSecret",
    "deletionPolicy",
)
_TIMING = ("timeoutSeconds", "heartbeatIntervalSeconds")
MAX_VALUE = 200  # characters of a value in a message, which has 1,024 and names several values
_NEVER_RUN = {"sql": "SELECT * FROM logs", "sink": {"console": {}}}
_NEVER_RUN_ON_SUBSCRIPTION = {"processor": {"factory": "never:Run", "acknowledge": "Log"}}


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
    """The object as a user wrote it; with ``old``, checks the immutable fields too. Raises
    `InvalidResourceError`, also for an unknown field.
    """
    resource = _parse(document)
    problems = () if old is None else tuple(_changed(old.spec, resource.spec))
    if problems:
        raise InvalidResourceError(problems)
    return resource


def parse_stored(document: Mapping[str, Any]) -> LogHubConsumerGroup:
    """The object as an API server, or `loghub up`, stored it; unknown fields are ignored. Raises
    `InvalidResourceError` for what this release cannot carry out.
    """
    return _parse(document, extra="ignore")


def parse_for_deletion(document: Mapping[str, Any]) -> LogHubConsumerGroup | None:
    """What a deletion needs of a stored object that cannot be parsed as a whole; the rest has defaults, and a
    pipeline that is never run. None if it does not say which group is meant, or what should happen to it.
    """
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return None
    pipeline = _NEVER_RUN if spec.get("subscription") is None else _NEVER_RUN_ON_SUBSCRIPTION
    for names in ((*_NAMES_OF_GROUP, *_TIMING), _NAMES_OF_GROUP):
        kept = {name: spec[name] for name in names if name in spec}
        try:
            return parse_stored({**document, "spec": {**kept, "pipeline": pipeline}})
        except InvalidResourceError:
            continue
    return None


def _parse(document: Mapping[str, Any], *, extra: Literal["ignore"] | None = None) -> LogHubConsumerGroup:
    """``extra`` None: as each model says."""
    written = {key: value for key, value in document.items() if key != "status"}
    try:
        resource = LogHubConsumerGroup.model_validate_json(json.dumps(written, default=str), extra=extra)
    except ValidationError as error:
        raise InvalidResourceError(
            tuple(_joined(problem for detail in error.errors() for problem in _problems(detail)))
        ) from None
    return resource.model_copy(update={"status": parse_status(document.get("status"))})


def parse_status(document: object) -> Status:
    """The last reported status, perhaps by another release: without the parts that this one cannot read. One
    that was reported has an observed generation, 0 if that is among those parts.
    """
    if not isinstance(document, Mapping) or not document:
        return Status()
    status = _readable(dict(document))
    if status.observed_generation is None:
        return status.model_copy(update={"observed_generation": 0})
    return status


def _readable(remaining: dict[str, Any]) -> Status:
    while True:
        try:
            return Status.model_validate_json(json.dumps(remaining), extra="ignore")
        except ValidationError as error:
            remaining = copy.deepcopy(remaining)
            # From the last one on, so that removing an item of a list does not move those to come.
            unreadable = {_unreadable(detail) for detail in error.errors()}
            if () in unreadable:  # nested too deeply
                return Status()
            for path in sorted(unreadable, key=_order, reverse=True):
                _remove(remaining, path)


def _unreadable(error: ErrorDetails) -> tuple[int | str, ...]:
    """The path of the part to leave out: the invalid value or, if a value is missing, the object that should
    have it."""
    return error["loc"][:-1] if error["type"] == "missing" else error["loc"]


def _order(path: tuple[int | str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (0, part) for part in path)


def _remove(value: Any, path: tuple[int | str, ...]) -> None:
    *parents, last = path
    for part in parents:
        value = value[part]
    del value[last]


def _problems(detail: ErrorDetails) -> tuple[Problem, ...]:
    path = _path(detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            hint = did_you_mean(path.rpartition(".")[2], _fields_beside(detail["loc"]))
            return (Problem(path, f'unknown field "{path}"{hint}'),)
        case "missing":
            return (Problem(path, "Required value"),)
        case kind if kind == RULE_ERROR:
            failed = detail["ctx"]["failed"]
            return tuple(Problem(f"{path}.{field}" if field else path, text) for field, text in failed)
        case "json_invalid":  # it was written as JSON just now, so only its depth can be wrong
            return (Problem("spec.worker.podTemplate", "nested too deeply; at most 190 levels are read"),)
        case _:
            value = json.dumps(detail["input"], default=str)
            return (Problem(path, f"Invalid value: {_shortened(value)}: {detail['msg']}"),)


def _fields_beside(location: tuple[int | str, ...]) -> Iterator[str]:
    """The fields that the object has in which an unknown one is, as they are written."""
    models: list[type[BaseModel]] = [LogHubConsumerGroup]
    for part in location[:-1]:
        fields = [field for model in models for field in model.model_fields.values() if field.alias == part]
        # Otherwise it is the place in a list, or the type of a union.
        models = [model for field in fields for model in _models_in(field.annotation)] or models
    yield from (field.alias for model in models for field in model.model_fields.values() if field.alias)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _shortened(value: str) -> str:
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]} (and more)"


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
    for rule in Spec.IMMUTABLE:
        assert isinstance(rule, Immutable)
        if not rule.same(_value(old, rule.field), _value(new, rule.field)):
            yield Problem(f"spec.{rule.field}", rule.message)


def _value(model: Spec, path: str) -> Any:
    """The value of a field as it is spelled in the resource, such as ``pipeline.stateful``."""
    value: Any = model
    for part in path.split("."):
        names = {to_camel(name): name for name in type(value).model_fields}
        value = getattr(value, names[part])
    return value
