"""Who made the consumer group, as it stands on the object.

What for: annotations, written before the group is made, so that only a group that we made is ever
deleted. What it must not know: who keeps the object. Read next: `loghub_operator.plan.planner`.

Which group is meant belongs to it. After an edit of the endpoint the same name is another group, of
which nothing is known yet; another spelling of it is no such edit. And an object that was copied with
its annotations names another group, which may be somebody's.
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
    """The annotations that say so."""
    return {
        ANNOTATION_ORIGIN: origin,
        ANNOTATION_ENDPOINT: resource.spec.endpoint,
        ANNOTATION_GROUP: _group(resource),
    }


def read_origin(resource: LogHubConsumerGroup) -> GroupOrigin | None:
    """What they say of the group that it names; None: nothing."""
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
