"""Fields that another client changed, and what is remembered of their corrections."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from loghub_operator.model.revision import UNKNOWN, Revision


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ObjectName:
    """An object of ours: in the namespace of its LogHubConsumerGroup, or the consumer group itself."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FieldPath:
    """A field that differs from what the operator wrote; ``path`` "" means that the object is missing."""

    REPLICAS: ClassVar = "spec.replicas"
    ANNOTATIONS: ClassVar = "metadata.annotations"

    object: ObjectName
    path: str

    def __str__(self) -> str:
        return f"{self.object} {self.path or '(missing)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCorrection:
    """How often one object was corrected, and when last."""

    times: int
    at_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftHistory:
    """All recent corrections by object. They belong to one desired state: ``revision`` and ``replicas``."""

    revision: Revision = UNKNOWN
    replicas: int = 0
    corrections: Mapping[ObjectName, DriftCorrection] = field(default_factory=dict)


NO_DRIFT_HISTORY = DriftHistory()
