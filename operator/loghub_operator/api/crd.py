"""The CustomResourceDefinition, generated from the models.

``python -m loghub_operator.api.crd`` prints ``crds/loghubconsumergroups.loghub.dev.yaml``; a test compares
the committed file with it. Pydantic writes JSON Schema; Kubernetes accepts a structural part of it: no
references, no nulls, no ``const``. `structural` turns one into the other.
"""

import math
import sys
from typing import Any

import yaml

from loghub_operator.api.status import NOT_OBSERVED, Status
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
_KEYWORDS = (
    "description",
    "type",
    "format",
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
CATEGORIES = ("loghub",)  # not "all": `kubectl delete all --all` would delete the groups
_READY_REASON = '.status.conditions[?(@.type=="Ready")].reason'
# Name, type, path; the second group is shown with `kubectl get -o wide`.
COLUMNS = (
    ("Phase", "string", ".status.phase"),
    ("Ready", "string", ".status.workers"),
    ("Up-To-Date", "integer", ".status.updatedReplicas"),
    ("Reason", "string", _READY_REASON),
    ("Shards", "integer", ".status.shardSummary.total"),
    ("Lag(s)", "integer", ".status.lag.seconds"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
WIDE_COLUMNS = (
    ("Project", "string", ".spec.project"),
    ("Logstore", "string", ".spec.logstore"),
    ("Group", "string", ".status.consumerGroup"),
    ("Subscription", "string", ".spec.subscription.type"),
    ("Mode", "string", ".spec.scaling.mode"),
    ("Assignable", "integer", ".status.shardSummary.assignable"),
    ("Lag(logs)", "integer", ".status.lag.logs"),
)
SELECTABLE = (".spec.project", ".spec.logstore", ".spec.consumerGroup", ".spec.scaling.mode", ".status.phase")
_INT32 = 2**31 - 1


def crd() -> Schema:
    """The whole object."""
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": SINGULAR,
        "shortNames": [SHORT_NAME],
        "categories": list(CATEGORIES),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version()]},
    }


def _version() -> Schema:
    scale: Schema = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    columns: list[Schema] = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in COLUMNS]
    columns += [
        {"name": name, "type": kind, "jsonPath": path, "priority": 1} for name, kind, path in WIDE_COLUMNS
    ]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "selectableFields": [{"jsonPath": path} for path in SELECTABLE],
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _root()},
    }


def _root() -> Schema:
    return {
        "description": "A consumer group of an SLS logstore, and the workers that consume it.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": with_defaults_explained(structural(Spec.model_json_schema(by_alias=True))),
            # Without a status, kstatus takes a new object for finished before the operator has seen it.
            "status": without_defaults(structural(Status.model_json_schema(by_alias=True)))
            | {"default": {"observedGeneration": NOT_OBSERVED}},
        },
        "x-kubernetes-validations": [rule.as_cel() for rule in LogHubConsumerGroup.RULES],
    }


def structural(schema: Schema) -> Schema:
    """The same schema in the part of JSON Schema that Kubernetes accepts."""
    return _structural(schema, schema.get("$defs", {}))


def _structural(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _resolved(node, definitions)
    result = {key: node[key] for key in _KEYWORDS if key in node and node[key] is not None}
    result |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if isinstance(result.get("default"), dict):
        result["default"] = _without_null(result["default"])
    if "format" not in result and result.get("type") in ("integer", "number"):
        result["format"] = _format(result)
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in node:
        result["properties"] = {
            name: _structural(part, definitions) for name, part in node["properties"].items()
        }
    if isinstance(node.get("items"), dict):
        result["items"] = _structural(node["items"], definitions)
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    return result


def _without_null(default: Any) -> Any:
    """The API server accepts no null as the default of a field, at any depth."""
    if not isinstance(default, dict):
        return default
    return {key: _without_null(value) for key, value in default.items() if value is not None}


def _format(number: Schema) -> str:
    if number["type"] == "number":
        return "double"
    return "int32" if number.get("maximum", math.inf) <= _INT32 else "int64"


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Resolve references, drop the null of an optional field, fold "integer or string"."""
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


def with_defaults_explained(schema: Schema) -> Schema:
    """`kubectl explain` does not show a default, so the description names it."""
    if isinstance(schema.get("properties"), dict):
        parts = {name: with_defaults_explained(part) for name, part in schema["properties"].items()}
        schema = {**schema, "properties": parts}
    if isinstance(schema.get("items"), dict):
        schema = {**schema, "items": with_defaults_explained(schema["items"])}
    default = schema.get("default")
    if default is None or isinstance(default, dict | list):
        return schema
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return {**schema, "description": f"{schema['description']} Default: {text}."}


def without_defaults(schema: Schema) -> Schema:
    """The operator writes a status whole, so the apiserver must not add anything to it."""
    if isinstance(schema.get("properties"), dict):
        parts = {name: without_defaults(part) for name, part in schema["properties"].items()}
        schema = {**schema, "properties": parts}
    if isinstance(schema.get("items"), dict):
        schema = {**schema, "items": without_defaults(schema["items"])}
    return {key: value for key, value in schema.items() if key != "default"}


def crd_yaml() -> str:
    """The committed file."""
    head = "# Generated by `python -m loghub_operator.api.crd`; change the models, not this file.\n"
    return head + yaml.dump(crd(), Dumper=_WithoutAnchors, sort_keys=False, width=110, allow_unicode=True)


class _WithoutAnchors(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
