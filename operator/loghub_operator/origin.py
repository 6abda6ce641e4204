"""Who made the consumer group, as it stands on the object.

What for: two annotations, written before the group is made, so that only a group that we made is
ever deleted. What it must not know: who keeps the object. Read next: `loghub_operator.plan`.

The endpoint belongs to it: after an edit of it the same name is another group, of which nothing
is known yet. Another spelling of it is no such edit.
"""

from collections.abc import Mapping

from loghub.wire import hosts
from loghub_operator.model import GroupOrigin

ANNOTATION_ORIGIN = "loghub.dev/group-origin"  # Created or Adopted
ANNOTATION_ENDPOINT = "loghub.dev/group-origin-endpoint"  # spec.endpoint at that time
ANNOTATIONS = (ANNOTATION_ORIGIN, ANNOTATION_ENDPOINT)


def origin_marks(origin: GroupOrigin, endpoint: str) -> dict[str, str]:
    """The annotations that say so; ``endpoint`` is the spec's."""
    return {ANNOTATION_ORIGIN: origin, ANNOTATION_ENDPOINT: endpoint}


def origin_in(annotations: Mapping[str, str], endpoint: str) -> GroupOrigin | None:
    """What they say of the group at this endpoint; None: nothing."""
    if hosts.log_service(annotations.get(ANNOTATION_ENDPOINT, "")) != hosts.log_service(endpoint):
        return None
    match annotations.get(ANNOTATION_ORIGIN):
        case "Created":
            return "Created"
        case "Adopted":
            return "Adopted"
        case _:
            return None
