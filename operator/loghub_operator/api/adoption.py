"""Records on the object what was found when the operator first dealt with the consumer group.

The annotations are written before the group is created, so that the operator only ever deletes a group that
it created. They also say which group is meant. After a change of the endpoint the same name is another group,
of which nothing is known yet, and the endpoint of the former one is recorded too; another spelling of the
same endpoint is not such a change. An object that was copied with its annotations refers to another group,
which may belong to another user. They name the object too: one that was restored from a backup, or into
another cluster, is a stranger to the group, which another object may still consume.
"""

from dataclasses import dataclass
from typing import Literal

from loghub.wire import names
from loghub_operator.api.status import OwnershipStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup

ANNOTATION_ORIGIN = "loghub.dev/group-origin"  # a `GroupOrigin`
ANNOTATION_ENDPOINT = "loghub.dev/group-origin-endpoint"  # spec.endpoint at that time
ANNOTATION_GROUP = "loghub.dev/group-origin-of"  # project/logstore/group
ANNOTATION_UID = "loghub.dev/group-origin-uid"  # of the object that this was recorded on
ANNOTATION_LAST_INITIAL_SHARD = "loghub.dev/last-initial-shard"  # see `GroupRecord`
ANNOTATION_LEFT_BEHIND = "loghub.dev/groups-left-behind"  # former values of spec.endpoint
ANNOTATIONS = (
    ANNOTATION_ORIGIN,
    ANNOTATION_ENDPOINT,
    ANNOTATION_GROUP,
    ANNOTATION_UID,
    ANNOTATION_LAST_INITIAL_SHARD,
    ANNOTATION_LEFT_BEHIND,
)
# An object rarely changes its log service twice, and each name takes room in an annotation.
MAX_LEFT_BEHIND = 10
SUBSCRIPTION = "subscription"  # in the path of one, before its name


GroupOrigin = Literal["Created", "Adopted", "Refused"]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Whether the group was created for the object, and which shards the logstore had then.

    Refused: its creation was refused, so a group that exists later was created by another client.
    ``last_initial_shard`` is the highest number among them, None if it is unknown. A shard with a higher
    number was created by a later split or merge: it continues shards that the group already reads.
    """

    origin: GroupOrigin
    last_initial_shard: int | None

    @property
    def is_about_ours(self) -> bool:
        """Whether the object has created or adopted the group, or is about to create it."""
        return self.origin != "Refused"


def record_annotations(record: GroupRecord, resource: LogHubConsumerGroup) -> dict[str, str]:
    """The annotations that hold the record."""
    annotations = {
        ANNOTATION_ORIGIN: record.origin,
        ANNOTATION_ENDPOINT: resource.spec.endpoint,
        ANNOTATION_GROUP: group_path(resource),
        ANNOTATION_UID: resource.metadata.uid,
    }
    if record.last_initial_shard is not None:
        annotations[ANNOTATION_LAST_INITIAL_SHARD] = str(record.last_initial_shard)
    if left_behind := _all_left_behind(resource):
        annotations[ANNOTATION_LEFT_BEHIND] = ",".join(left_behind)
    return annotations


def is_annotated(resource: LogHubConsumerGroup) -> bool:
    """Whether the annotations record anything."""
    return any(name in resource.metadata.annotations for name in ANNOTATIONS)


def is_attributed(resource: LogHubConsumerGroup) -> bool:
    """Whether the annotations record on which object they were written."""
    return ANNOTATION_UID in resource.metadata.annotations


def read_record(resource: LogHubConsumerGroup) -> GroupRecord | None:
    """The record of the group that the object refers to; None: nothing is recorded.

    `kubectl replace` removes all annotations and keeps the status, which then has the record.
    """
    if is_annotated(resource):
        return _annotated_record(resource)
    stored, origin = stored_ownership(resource), resource.status.group_origin
    return None if stored is None or origin is None else GroupRecord(origin, stored.last_initial_shard)


def endpoint_left_behind(resource: LogHubConsumerGroup) -> str | None:
    """The endpoint at which this object had a group until its spec changed to another log service."""
    stored = resource.status.ownership
    if stored is None or stored.uid != resource.metadata.uid or resource.status.group_origin is None:
        return None
    same = names.log_service(stored.endpoint) == names.log_service(resource.spec.endpoint)
    return None if same else stored.endpoint


def is_recorded_elsewhere(resource: LogHubConsumerGroup) -> bool:
    """Whether what is recorded on the object is about a group of another log service: workers that exist then
    were started for that group.
    """
    endpoint = resource.spec.endpoint
    annotated = resource.metadata.annotations.get(ANNOTATION_ENDPOINT, endpoint)
    elsewhere = names.log_service(annotated) != names.log_service(endpoint)
    return elsewhere or endpoint_left_behind(resource) is not None


def _all_left_behind(resource: LogHubConsumerGroup) -> tuple[str, ...]:
    """The newest ones, oldest first."""
    recorded = resource.metadata.annotations.get(ANNOTATION_LEFT_BEHIND, "")
    endpoints = (*filter(None, recorded.split(",")), endpoint_left_behind(resource))
    return tuple(dict.fromkeys(one for one in endpoints if one))[-MAX_LEFT_BEHIND:]


def _annotated_record(resource: LogHubConsumerGroup) -> GroupRecord | None:
    annotations, endpoint = resource.metadata.annotations, resource.spec.endpoint
    if annotations.get(ANNOTATION_GROUP) != group_path(resource) or not _is_about(resource):
        return None
    if names.log_service(annotations.get(ANNOTATION_ENDPOINT, "")) != names.log_service(endpoint):
        return None
    last = _shard(annotations.get(ANNOTATION_LAST_INITIAL_SHARD, ""))
    match annotations.get(ANNOTATION_ORIGIN):
        case "Created":
            return GroupRecord("Created", last)
        case "Adopted":
            return GroupRecord("Adopted", last)
        case "Refused":
            return GroupRecord("Refused", last)
        case _:
            return None


def _is_about(resource: LogHubConsumerGroup) -> bool:
    """Whether the annotations were written on this object. Earlier releases did not say so; then its status
    does, which a copy does not have.
    """
    uid = resource.metadata.annotations.get(ANNOTATION_UID)
    return stored_ownership(resource) is not None if uid is None else uid == resource.metadata.uid


def stored_ownership(resource: LogHubConsumerGroup) -> OwnershipStatus | None:
    """What the status says, if it is about this object and its group. A status that was restored from a
    backup is about another object.
    """
    stored = resource.status.ownership
    if stored is None or stored.uid != resource.metadata.uid or stored.group != group_path(resource):
        return None
    same = names.log_service(stored.endpoint) == names.log_service(resource.spec.endpoint)
    return stored if same else None


def _shard(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def group_path(resource: LogHubConsumerGroup) -> str:
    """``project/logstore/group``; of a subscription, ``project/logstore/subscription/name``, since a group of
    the same name is another thing.
    """
    kind = "" if resource.spec.subscription is None else f"{SUBSCRIPTION}/"
    return f"{resource.spec.project}/{resource.spec.logstore}/{kind}{resource.group}"
