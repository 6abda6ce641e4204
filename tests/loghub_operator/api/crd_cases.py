"""For each bound of the CRD's schema a value beyond it and values just within it, generated from the CRD, so
that a new bound has its cases without further work.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loghub.contract.worker import KUBERNETES
from loghub_operator.api.crd import crd
from tests.loghub_operator.support.examples import Document, document, merge

Path = tuple[str, ...]
ITEM, KEY = "0", "any-key"  # in a path: the item of a list, the value of a map
LIST, INT_OR_TEXT = "x-kubernetes-list-type", "x-kubernetes-int-or-string"
# The schema's keywords that bound a value, and the other keywords.
BOUNDS = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems",
          "maxItems", "maxProperties", LIST, INT_OR_TEXT)  # fmt: skip
OTHER = ("description", "default", "properties", "items", "additionalProperties", "required",
         "x-kubernetes-list-map-keys", "x-kubernetes-validations",
         "x-kubernetes-preserve-unknown-fields")  # fmt: skip
# The apiserver's message for each bound.
MESSAGES = {
    "type": "in body must be of type {}:",
    INT_OR_TEXT: "in body must be of type {}:",
    "format": "in body must be of type {}",
    "enum": "Unsupported value: ",
    "minimum": "in body should be greater than or equal to {}",
    "maximum": "in body should be less than or equal to {}",
    "minLength": "in body should be at least {} chars long",
    "maxLength": "Too long: may not be more than {} bytes",
    "pattern": "in body should match '{}'",
    "minItems": "in body should have at least {} items",
    "maxItems": "must have at most {} items",
    "maxProperties": "must have at most {} items",
    LIST: "Duplicate value: ",
    "required": "Required value",
}
WRONG_TYPE = {"string": 7, "object": "x", "array": "x", "integer": "x", "number": "x", "boolean": "x"}
# Tried on each pattern; what does not match it must be refused.
STRANGE = ("a%a", "-aa", "aa-", "_aa", "aa_", "AAA", "Aa:", "aaa ", "a aa", "aaa\n", ".aa", "a/", "../a",
           "/a", "a//a", "1a:b", "a:b:c", "0512m", "12k", "-1", "1e3")  # fmt: skip
# Further fields that the rules of the CRD require with a value, so that only the value is wrong or right.
DEPENDENCIES: dict[str, Document] = {
    "heartbeatIntervalSeconds": {"timeoutSeconds": 3600},
    "timeoutSeconds": {"heartbeatIntervalSeconds": 1},
    "pipeline.state": {"pipeline": {"stateful": True}},
    "pipeline.python": {"pipeline": {"sql": None}},
    "pipeline.processor": {"pipeline": {"sql": None, "sink": None}},
    "pipeline.processor.redelivery.delayMilliseconds": {
        "pipeline": {"processor": {"redelivery": {"maxDelayMilliseconds": 3_600_000}}}
    },
    "pipeline.processor.redelivery.maxDelayMilliseconds": {
        "pipeline": {"processor": {"redelivery": {"delayMilliseconds": 50}}}
    },
    "pipeline.processor.redelivery.ackTimeoutSeconds": {"pipeline": {"processor": {"acknowledge": "Log"}}},
    "pipeline.processor.redelivery.maxAckTimeoutSeconds": {
        "pipeline": {"processor": {"acknowledge": "Log", "redelivery": {"ackTimeoutSeconds": 1}}}
    },
    "pipeline.processor.retryLogstore": {"pipeline": {"onFailure": {"policy": "Skip"}}},
    "subscription": {
        "pipeline": {"sql": None, "sink": None, "processor": {"factory": "a:b", "acknowledge": "Log"}}
    },
    "subscription.key": {"subscription": {"type": "KeyShared"}},
    "subscription.inOrder": {"subscription": {"type": "Failover"}},
    "pipeline.sink.json": {"pipeline": {"sink": {"parquet": None}}},
    "pipeline.sink.json.path": {"pipeline": {"sink": {"json": {"volumeClaim": "a"}}}},
    "pipeline.sink.json.volumeClaim": {"pipeline": {"sink": {"json": {"path": "a"}}}},
    "pipeline.sink.json.s3": {"pipeline": {"sink": {"json": {"url": "s3://bucket"}}}},
    "pipeline.sink.json.partitionBy": {"pipeline": {"sink": {"json": {"url": "s3://bucket"}}}},
    "pipeline.sink.json.roll": {"pipeline": {"sink": {"json": {"url": "s3://bucket"}}}},
    "pipeline.sink.delta": {"pipeline": {"sink": {"parquet": None}}},
    "pipeline.sink.delta.path": {"pipeline": {"sink": {"delta": {"volumeClaim": "a"}}}},
    "pipeline.sink.delta.volumeClaim": {"pipeline": {"sink": {"delta": {"path": "a"}}}},
    "pipeline.sink.delta.s3": {"pipeline": {"sink": {"delta": {"url": "s3://bucket"}}}},
    "pipeline.sink.delta.partitionBy": {"pipeline": {"sink": {"delta": {"url": "s3://bucket"}}}},
    "pipeline.sink.delta.schemaEvolution": {"pipeline": {"sink": {"delta": {"url": "s3://bucket"}}}},
    "pipeline.sink.parquet.url": {"pipeline": {"sink": {"parquet": {"path": None, "volumeClaim": None}}}},
    "pipeline.sink.parquet.s3": {
        "pipeline": {"sink": {"parquet": {"path": None, "volumeClaim": None, "url": "s3://bucket"}}}
    },
    "pipeline.sink.console": {"pipeline": {"sink": {"parquet": None}}},
    "pipeline.sink.logstore": {"pipeline": {"sink": {"parquet": None}}},
    "pipeline.sink.postgresql": {
        "pipeline": {"sink": {"parquet": None, "credentialsSecret": {"name": "database"}}}
    },
    "pipeline.sink.kafka": {"pipeline": {"sink": {"parquet": None}}},
    "pipeline.sink.kafka.sasl": {"pipeline": {"sink": {"credentialsSecret": {"name": "user"}}}},
    "pipeline.sink.spark": {"pipeline": {"sink": {"parquet": None}}},
    "spark.executors": {"spark": {"master": KUBERNETES, "cores": 64}},
    "pipeline.onFailure.deadLetter": {"pipeline": {"onFailure": {"policy": "DeadLetter"}}},
    "pipeline.onFailure.policy=DeadLetter": {
        "pipeline": {"onFailure": {"deadLetter": {"logstore": {"name": "rejected"}}}}
    },
    "scaling.scaleToZero": {"scaling": {"mode": "Auto"}},
    "scaling.shards.minShards": {"scaling": {"shards": {"maxShards": 256}}},
    "resetCheckpoints.to=Timestamp": {"resetCheckpoints": {"timestamp": "2026-01-31T08:00:00Z"}},
    "resetCheckpoints.to=ConfigMap": {"resetCheckpoints": {"configMapName": "kept"}},
    "resetCheckpoints.timestamp": {"resetCheckpoints": {"to": "Timestamp"}},
    "worker.log.file.path": {"worker": {"log": {"file": {"volumeClaim": "logs"}}}},
    "worker.log.file.maxSizeMiB": {"worker": {"log": {"file": {"volumeClaim": "logs"}}}},
    "startPosition.from=Timestamp": {"startPosition": {"timestamp": "2026-01-31T08:00:00Z"}},
    "startPosition.timestamp": {"startPosition": {"from": "Timestamp"}},
    "resetCheckpoints.configMapName": {"resetCheckpoints": {"to": "ConfigMap"}},
}
# The shortest and the longest right texts where a rule says more than pattern and length.
RULED = {
    "endpoint": ("embedded", "http://" + "a" * 505),
    "spark.master": ("spark://a:1", "spark://" + "a" * 1014 + ":1"),
    "spark.memory": ("1g", "999999m"),
    "spark.executors.memory": ("1g", "999999m"),
    "spark.executors.memoryOverhead": ("1g", "999999m"),
    "pipeline.state.size": ("1Gi", "999999999Ti"),
    "pipeline.sink.parquet.url": ("s3://aaa", "s3://aaa/" + "a" * 567),
    "pipeline.sink.json.url": ("s3://aaa", "s3://aaa/" + "a" * 567),
    "pipeline.sink.delta.url": ("s3://aaa", "s3://aaa/" + "a" * 567),
    "pipeline.sink.delta.s3.endpoint": ("https://a", "https://" + "a" * 504),
    "pipeline.sink.parquet.s3.endpoint": ("https://a", "https://" + "a" * 504),
    "pipeline.sink.json.s3.endpoint": ("https://a", "https://" + "a" * 504),
    "pipeline.sink.kafka.bootstrapServers": ("a:1", "a" * 2046 + ":1"),
}
FIRST_TIME, MAX_TIME = "1970-01-01T00:00:01Z", f"2026-01-31T08:00:00.{'0' * 38}+08:00"
# The smallest valid value where a rule requires more than the schema.
SMALLEST = {
    "pipeline.sink.json": {"path": "a", "volumeClaim": "a"},
    "pipeline.sink.delta": {"path": "a", "volumeClaim": "a"},
    "pipeline.onFailure.deadLetter": {"logstore": {"name": "rejected"}},
    "worker.env.0.valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}},
    "scaling.workerCapacity": 1,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A whole object in which one value matters."""

    place: str  # of the value, as the apiserver spells it
    bound: str  # the schema's keyword
    document: Document
    message: str = ""  # the apiserver's, where it refuses


@functools.cache
def broken() -> dict[str, Case]:
    """Each bound of the CRD with values that break this bound and no other."""
    cases = [
        Case(
            place(path) + ("[1]" if bound == LIST else ""),
            bound,
            whole(path, value),
            message_of(bound, schema),
        )
        for path, schema in bounded()
        for bound in bounds_of(schema)
        for value in beyond(path, bound, schema)
    ]
    cases += [
        Case(place((*path, name)), "required", whole((*path, name), None), message_of("required", schema))
        for path, schema in bounded()
        for name in schema.get("required", ())
    ]
    cases.append(Case("spec", "required", {**document(), "spec": None}, "Required value"))
    return _named(cases)


@functools.cache
def accepted_values() -> dict[str, Case]:
    """Each bound of the CRD with the outermost right values."""
    return _named(
        Case(place(path), bound, whole(path, value))
        for path, schema in bounded()
        for bound in bounds_of(schema)
        for value in within(path, bound, schema)
    )


def bounded() -> list[tuple[Path, Document]]:
    """The schemas of spec and status; what is around them is Kubernetes' own."""
    return [(path, schema) for path, schema in nodes(root()) if path and path[0] in ("spec", "status")]


def bounds_of(schema: Document) -> list[str]:
    return [word for word in BOUNDS if word in schema and not (word == "format" and is_number(schema))]


def is_number(schema: Document) -> bool:
    """Of a number the format says which type clients use for it; minimum and maximum are the bounds."""
    return schema.get("type") in ("integer", "number")


def _named(cases: Iterable[Case]) -> dict[str, Case]:
    named, counts = {}, Counter[str]()
    for case in cases:
        name = f"{case.place}-{case.bound}"
        counts[name] += 1
        named[f"{name}-{counts[name]}"] = case
    return named


def place(path: Path) -> str:
    """As the apiserver spells it."""
    return ".".join(path).replace(f".{ITEM}", f"[{ITEM}]")


@functools.cache
def root() -> Document:
    (version,) = crd()["spec"]["versions"]
    schema: Document = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Document, path: Path = ()) -> Iterator[tuple[Path, Document]]:
    """Each schema of the CRD with its place."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, (*path, name))
    for step, part in ((ITEM, schema.get("items")), (KEY, schema.get("additionalProperties"))):
        if part is not None:
            yield from nodes(part, (*path, step))


def schema_at(path: Path) -> Document:
    cases = root()
    for step in path:
        part = cases.get("properties", {}).get(step) or cases.get("items") or cases["additionalProperties"]
        cases = dict(part)
    return cases


def _below(path: Path) -> str:
    """A place of the spec as key of the tables above."""
    return ".".join(path[1:]) if path[0] == "spec" else ""


# The values of one bound


def message_of(bound: str, schema: Document) -> str:
    if bound == "enum":
        return "supported values: " + ", ".join(f'"{one}"' for one in schema["enum"])
    if bound == "type" and "format" in schema and not is_number(schema):
        return MESSAGES["format"].format(schema["format"])
    return MESSAGES[bound].format("integer,string" if bound == INT_OR_TEXT else schema.get(bound))


def beyond(path: Path, bound: str, schema: Document) -> list[Any]:
    limit = schema[bound]
    match bound:
        case "type":
            return [WRONG_TYPE[limit]]
        case "x-kubernetes-int-or-string":
            return [True]
        case "format":
            return ["yesterday", "2026-02-30T00:00:00Z", "2026-01-31", "2026-01-31T08:00:00"]
        case "enum":
            return ["no-such-word", schema["enum"][0].swapcase()]
        case "minimum":
            return [limit - 1]
        case "maximum":
            return [limit + 1]
        case "minLength":
            return [text(path, limit - 1)]
        case "maxLength":
            return [text(path, limit + 1)]
        case "pattern":
            strange = STRANGE if path == first_with(limit) else STRANGE[:1]
            return [one for one in strange if not fits(limit, one) and _long_enough(schema, one)]
        case "minItems":
            return [many(path, limit - 1)]
        case "maxItems":
            return [many(path, limit + 1)]
        case "maxProperties":
            return [{f"k{number}": "1" for number in range(limit + 1)}]
    return [many(path, 1) * 2] if limit in ("map", "set") else []


def within(path: Path, bound: str, schema: Document) -> list[Any]:
    limit = schema[bound]
    match bound:
        case "format":
            return [FIRST_TIME, MAX_TIME]
        case "enum":
            return list(limit)
        case "minimum" | "maximum":
            return [limit]
        case "minLength" | "maxLength":
            ruled = RULED.get(_below(path))
            return [ruled[bound == "maxLength"] if ruled else text(path, limit)]
        case "pattern":
            strange = STRANGE if path == first_with(limit) else ()
            return [one for one in strange if fits(limit, one) and _long_enough(schema, one)]
        case "minItems" | "maxItems":
            return [many(path, limit)]
        case "maxProperties":
            return [{f"k{number}": "1" for number in range(limit)}]
    return (
        [many(path, 2)]
        if bound == LIST and limit in ("map", "set")
        else [SMALLEST.get(_below(path)) or minimum(path)]
    )


def first_with(pattern: str) -> Path:
    """A pattern is tried at length in one place only."""
    return next(path for path, schema in bounded() if schema.get("pattern") == pattern)


def _long_enough(schema: Document, value: str) -> bool:
    return int(schema.get("minLength", 0)) <= len(value) <= int(schema.get("maxLength", len(value)))


# One value


def text(path: Path, length: int) -> str:
    """A text of this length, right by the pattern where one of this length can be."""
    if schema_at(path).get("format") == "date-time":
        whole, fraction = "2026-01-31T08:00:00", length - len("2026-01-31T08:00:00.Z")
        return f"{whole}.{'0' * fraction}Z" if fraction > 0 else FIRST_TIME
    pattern = schema_at(path).get("pattern", "")
    tries = ("a" * length, "a:" + "b" * (length - 2), "1" * (length - 1) + "g")
    return next((one for one in tries if len(one) == length and fits(pattern, one)), tries[0])


def fits(pattern: str, value: str) -> bool:
    """As the apiserver has it: ``$`` is the end, and not before a last line break too."""
    return (
        re.search(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, value) is not None
    )


def minimum(path: Path) -> Any:
    """The smallest right value."""
    schema = schema_at(path)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: minimum((*path, name)) for name in schema.get("required", ())}
        case "array":
            return many(path, schema.get("minItems", 0))
        case "string":
            ruled = RULED.get(_below(path))
            return ruled[0] if ruled else text(path, max(schema.get("minLength", 0), 1))
        case "boolean":
            return False
    return schema.get("minimum", 0)


def many(path: Path, count: int) -> list[Any]:
    """A list of so many items that differ."""
    item, (key, *_) = (*path, ITEM), schema_at(path).get("x-kubernetes-list-map-keys", [""])
    if key:
        number = schema_at((*item, key))["type"] == "integer"
        return [minimum(item) | {key: n if number else f"n{n}"} for n in range(count)]
    if schema_at(item)["type"] == "integer":
        return [minimum(item) + n for n in range(count)]
    differ = schema_at(path).get(LIST) == "set"
    return [f"{minimum(item)}{n}" if differ else minimum(item) for n in range(count)]


# A whole object


def whole(path: Path, value: Any) -> Document:
    """A whole object with this value (None: without it) in its place, and the fields that it requires."""
    target = f"{_below(path)}={value}"
    for at in range(len(path) - 1, 0, -1):
        step, around = path[at], path[:at]
        dependencies = {} if step == KEY or len(around) == 1 else minimum(around)
        value = [value] if step == ITEM else {**dependencies, step: value}
    named = document()
    merge(named, {path[0]: value})
    for where, patch in DEPENDENCIES.items():
        if where == target or f"{_below(path)}.".startswith(f"{where}."):
            merge(named["spec"], patch)
    return dict(_without_none(named))


def _without_none(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_none(part) for part in value]
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return value
