"""The CustomResourceDefinition, made from the models.

What for: ``python -m loghub_operator.api.crd > crds/loghubconsumergroups.loghub.dev.yaml``; a
test compares the committed file with this. What it must not know: any one field. Read
next: `loghub_operator.api.v1alpha1`.

Pydantic writes JSON Schema; Kubernetes takes a structural part of it: no references, no
nulls, no ``const``. `structural` is the way from one to the other.
"""

import sys
from typing import Any

import yaml

from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import (
    GROUP,
    KIND,
    PLURAL,
    SHORT_NAME,
    SINGULAR,
    VERSION,
    LogHubConsumerGroup,
    Spec,
)

Schema = dict[str, Any]
_KEPT = (
    "description",
    "type",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)
COLUMNS = (
    ("Phase", "string", ".status.phase"),
    ("Workers", "string", ".status.workers"),
    ("Shards", "integer", ".status.shardCount"),
    ("Assignable", "integer", ".status.assignable"),
    ("Lag(s)", "integer", ".status.lag.seconds"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crd() -> Schema:
    """The whole object."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": SINGULAR,
        "shortNames": [SHORT_NAME],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version()]},
    }


def _version() -> Schema:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in COLUMNS]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> Schema:
    return {
        "description": "A consumer group of a logstore, and the workers that consume it.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(Spec.model_json_schema(by_alias=True)),
            "status": without_defaults(structural(Status.model_json_schema(by_alias=True))),
        },
        "x-kubernetes-validations": [rule.as_cel() for rule in LogHubConsumerGroup.RULES],
    }


def structural(schema: Schema) -> Schema:
    """The same schema in the part of JSON Schema that Kubernetes takes."""
    return _structural(schema, schema.get("$defs", {}))


def _structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _resolved(node, definitions)
    made = {key: node[key] for key in _KEPT if key in node and node[key] is not None}
    made |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if isinstance(made.get("default"), dict):
        made["default"] = {key: value for key, value in made["default"].items() if value is not None}
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    if "properties" in node:
        made["properties"] = {
            name: _structural(part, definitions) for name, part in node["properties"].items()
        }
    if isinstance(node.get("items"), dict):
        made["items"] = _structural(node["items"], definitions)
    if isinstance(node.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    return made


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Follow a reference, drop the null of an optional field, fold "integer or string"."""
    own = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "title")}
    if "$ref" in node:
        return _resolved(definitions[node["$ref"].rsplit("/", 1)[1]], definitions) | own
    if "anyOf" not in node:
        return own
    choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
    if len(choices) == 1:
        return _resolved(choices[0], definitions) | own
    if [choice.get("type") for choice in choices] == ["integer", "string"]:
        both = choices[0] | choices[1]
        return {key: value for key, value in both.items() if key not in ("type", "maxLength")} | {
            "x-kubernetes-int-or-string": True,
            **own,
        }
    raise ValueError(f"no structural form of {node}")


def without_defaults(schema: Schema) -> Schema:
    """A status is written whole: the apiserver adds nothing to it."""
    if isinstance(schema.get("properties"), dict):
        parts = {name: without_defaults(part) for name, part in schema["properties"].items()}
        schema = {**schema, "properties": parts}
    if isinstance(schema.get("items"), dict):
        schema = {**schema, "items": without_defaults(schema["items"])}
    return {key: value for key, value in schema.items() if key != "default"}


def crd_yaml() -> str:
    """The committed file."""
    head = "# Made by `python -m loghub_operator.api.crd`; change the models, not this file.\n"
    return head + yaml.safe_dump(crd(), sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
