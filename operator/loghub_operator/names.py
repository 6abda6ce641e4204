"""Names that both executors and the status share.

What for: labels and annotations in one place. What it must not know: objects, clients. Read
next: `loghub_operator.origin` (the annotations of a group's origin),
`loghub_operator.resources` (cluster objects that carry the others).
"""

MANAGER = "loghub-operator"  # field manager of server-side apply, and the managed-by label
FINALIZER = "loghub.dev/consumer-group"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PROJECT = "loghub.dev/project"
WORKER = "loghub-worker"
CHECKPOINTS = "loghub-checkpoints"
SERVICE = "loghub-service"
PART_OF = "loghub"

ANNOTATION_DELETE_ADOPTED = "loghub.dev/delete-adopted-group"  # on the CR, by the user: "true"
ANNOTATION_SEAT_SINCE = "loghub.dev/seat-since"  # on a pod: unix seconds at which leaving was asked for
ANNOTATION_CONFIG_HASH = "loghub.dev/config-hash"  # on a pod: the settings it runs with
ANNOTATION_APPLIED_HASH = "loghub.dev/applied-hash"  # on the StatefulSet: what was applied last
ANNOTATION_PODS_HASH = "loghub.dev/pods-hash"  # on the StatefulSet: the part of it that the pods are made of
ANNOTATION_ORDERED_AT = (
    "loghub.dev/ordered-at"  # on kept checkpoints: `status.checkpointReset.lastTransitionTime` of their reset
)
ANNOTATION_MOVED_TO = "loghub.dev/moved-to"  # on kept checkpoints: JSON from shard to the cursor forced


def worker_selector(name: str) -> dict[str, str]:
    """Labels that select the worker pods of the CR ``name`` in its namespace."""
    return {LABEL_NAME: WORKER, LABEL_INSTANCE: name}


def selector_text(name: str) -> str:
    """The same as text, for /scale."""
    return ",".join(f"{key}={value}" for key, value in sorted(worker_selector(name).items()))
