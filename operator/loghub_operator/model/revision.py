"""What the workers of a group run with, and the revision that identifies it.

One text, the annotation `loghub_operator.api.labels.ANNOTATION_REVISION`, is on the StatefulSet and on its
pods. A worker whose revision is the desired one needs no replacement; everything that asks whether something
differs from what should run compares revisions.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from loghub.contract.worker import WorkerConfig

Document = dict[str, Any]
_TEXT = re.compile(r"(\w*)\.(\w*)(?:\.(\w+)\.([0-9]{1,18}))?(?:;.*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Hashes of what workers run with; "" is unknown.

    ``settings``: of the `WorkerConfig`. ``pod_template``: of the pod template, or, with `loghub up`, of the
    variables that the user adds. Only the StatefulSet has the other two: ``objects`` is a hash of everything
    that is applied for the workers, except their number, and ``generation`` is the generation of the
    LogHubConsumerGroup when it was last applied. The generation is for readers and is not compared: a change
    of the spec that changes nothing for the workers need not be applied. What another release adds follows a
    semicolon, and is ignored; a release adds it only where it is used, since another text on pods restarts
    them.
    """

    settings: str = ""
    pod_template: str = ""
    objects: str = ""
    generation: int = field(default=0, compare=False)

    def same_workers(self, other: "Revision") -> bool:
        """Whether a worker with this revision needs no replacement to have the other."""
        return (self.settings, self.pod_template) == (other.settings, other.pod_template)

    def of_pods(self) -> "Revision":
        """The part that pods have."""
        return Revision(settings=self.settings, pod_template=self.pod_template)

    def __str__(self) -> str:
        on_pods = f"{self.settings}.{self.pod_template}"
        return f"{on_pods}.{self.objects}.{self.generation}" if self.objects else on_pods

    @classmethod
    def parse(cls, text: str) -> "Revision":
        """The revision in an annotation; unknown, and so equal to no desired one, if anyone edited it."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls()
        settings, pod_template, objects, generation = match.groups(default="")
        return cls(
            settings=settings, pod_template=pod_template, objects=objects, generation=int(generation or 0)
        )


UNKNOWN = Revision()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What the workers of one group should run with, built once per reconcile.

    ``stateful_set`` has no number of replicas; ``dependencies`` are applied before it, in this order. With
    `loghub up` there are no objects.
    """

    revision: Revision
    config: WorkerConfig
    stateful_set: Document = field(default_factory=dict)
    dependencies: tuple[Document, ...] = ()
