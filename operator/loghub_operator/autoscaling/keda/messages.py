"""The messages of KEDA's external scaler interface, described here instead of generated.

What for: names and numbers as in KEDA's externalscaler.proto (package ``externalscaler``), so that
no compiler's output has to fit the environment's protobuf. What it must not know: what is in
them. Read next: `loghub_operator.autoscaling.keda.scaler`.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int64": _Field.TYPE_INT64,
    "double": _Field.TYPE_DOUBLE,
}
_MANY = "repeated "
_ENTRY = "ScalerMetadataEntry"
# Message -> field -> (number, type); a name that is no scalar's is a message of this table.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ScaledObjectRef": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "scalerMetadata": (3, f"{_MANY}ScaledObjectRef.{_ENTRY}"),
    },
    "IsActiveResponse": {"result": (1, "bool")},
    "GetMetricSpecResponse": {"metricSpecs": (1, f"{_MANY}MetricSpec")},
    "MetricSpec": {
        "metricName": (1, "string"),
        "targetSize": (2, "int64"),
        "targetSizeFloat": (3, "double"),
    },
    "GetMetricsRequest": {"scaledObjectRef": (1, "ScaledObjectRef"), "metricName": (2, "string")},
    "GetMetricsResponse": {"metricValues": (1, f"{_MANY}MetricValue")},
    "MetricValue": {
        "metricName": (1, "string"),
        "metricValue": (2, "int64"),
        "metricValueFloat": (3, "double"),
    },
}
_MAP: dict[str, tuple[int, str]] = {"key": (1, "string"), "value": (2, "string")}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        _add_fields(file.message_type.add(name=name), fields)
    entry = file.message_type[0].nested_type.add(name=_ENTRY)
    entry.options.map_entry = True
    _add_fields(entry, _MAP)
    return file


def _add_fields(message: descriptor_pb2.DescriptorProto, fields: dict[str, tuple[int, str]]) -> None:
    for name, (number, kind) in fields.items():
        many, one = kind.startswith(_MANY), kind.removeprefix(_MANY)
        field = message.field.add(name=name, number=number)
        field.label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
        if one in _KINDS:
            field.type = _KINDS[one]
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{one}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_described())
    of = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(of(f"{PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES = _classes()
ScaledObjectRef: Any = _CLASSES["ScaledObjectRef"]
IsActiveResponse: Any = _CLASSES["IsActiveResponse"]
GetMetricSpecResponse: Any = _CLASSES["GetMetricSpecResponse"]
GetMetricsRequest: Any = _CLASSES["GetMetricsRequest"]
GetMetricsResponse: Any = _CLASSES["GetMetricsResponse"]
