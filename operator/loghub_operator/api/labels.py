"""Labels, annotations and other names that both executors and the status share.

`loghub_operator.api.adoption` defines the annotations of a group's origin.
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
# Of the Services of projects, and of the governing Services of workers.
OUR_SERVICES = {LABEL_PART_OF: PART_OF, LABEL_MANAGED_BY: MANAGER}

ANNOTATION_DELETE_ADOPTED = "loghub.dev/delete-adopted-group"  # on the CR, by the user: "true"
ANNOTATION_DRAIN_REQUESTED_AT = "loghub.dev/drain-requested-at"  # on a pod: RFC 3339
# On the workers' StatefulSet, their pods, and the ConfigMaps of their settings; see
# `loghub_operator.model.revision`.
ANNOTATION_REVISION = "loghub.dev/revision"
# On our objects: a hash of the fields that the API server or a webhook changed when they were written last.
ANNOTATION_LEFT_TO_OTHERS = "loghub.dev/left-to-others"
# On a ConfigMap of backed-up checkpoints: when the reset was requested, and a JSON object from shard to
# the cursor that was set.
ANNOTATION_RESET_REQUESTED_AT = "loghub.dev/reset-requested-at"
ANNOTATION_TARGET_CHECKPOINTS = "loghub.dev/target-checkpoints"


def worker_selector(name: str) -> dict[str, str]:
    """Labels that select the worker pods of the CR ``name`` in its namespace."""
    return {LABEL_NAME: WORKER, LABEL_INSTANCE: name}


def selector_text(name: str) -> str:
    """The selector as text, for /scale."""
    return ",".join(f"{key}={value}" for key, value in sorted(worker_selector(name).items()))
