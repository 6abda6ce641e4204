"""Records on the object whether the consumer group was created for it.

The annotations are written before the group is created, so that the operator only ever deletes a group that
it created. They also say which group is meant. After a change of the endpoint the same name is another group,
of which nothing is known yet; another spelling of the same endpoint is not such a change. An object that was
copied with its annotations refers to another group, which may belong to another user.
"""

from typing import Literal

from loghub.wire import hosts
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup

ANNOTATION_ORIGIN = "loghub.dev/group-origin"  # Created or Adopted
ANNOTATION_ENDPOINT = "loghub.dev/group-origin-endpoint"  # spec.endpoint at that time
ANNOTATION_GROUP = "loghub.dev/group-origin-of"  # project/logstore/group
ANNOTATIONS = (ANNOTATION_ORIGIN, ANNOTATION_ENDPOINT, ANNOTATION_GROUP)


GroupOrigin = Literal["Created", "Adopted"]


def origin_annotations(origin: GroupOrigin, resource: LogHubConsumerGroup) -> dict[str, str]:
    """The annotations that record the origin."""
    return {
        ANNOTATION_ORIGIN: origin,
        ANNOTATION_ENDPOINT: resource.spec.endpoint,
        ANNOTATION_GROUP: _group(resource),
    }


def read_origin(resource: LogHubConsumerGroup) -> GroupOrigin | None:
    """The recorded origin of the group that the object refers to; None: nothing is recorded."""
    annotations, endpoint = resource.metadata.annotations, resource.spec.endpoint
    if annotations.get(ANNOTATION_GROUP) != _group(resource):
        return None
    if hosts.log_service(annotations.get(ANNOTATION_ENDPOINT, "")) != hosts.log_service(endpoint):
        return None
    match annotations.get(ANNOTATION_ORIGIN):
        case "Created":
            return "Created"
        case "Adopted":
            return "Adopted"
        case _:
            return None


def _group(resource: LogHubConsumerGroup) -> str:
    return f"{resource.spec.project}/{resource.spec.logstore}/{resource.group}"
