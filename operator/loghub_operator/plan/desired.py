"""What one reconcile works towards, worked out once from the object and the observation."""

from dataclasses import dataclass

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, GroupSettings, ObservedState, Peer
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.adoption import adoption_refusal, foreign_consumers
from loghub_operator.plan.ownership import owner_of
from loghub_operator.plan.suspension import Suspension, suspension_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """``group`` are the settings that the spec asks for, ``group_now`` those to set now. ``owner`` is another
    object that owns the group. ``refusal`` says why this object must not adopt the group; ``foreign`` are
    live consumers of it that are no workers of this object. ``suspension`` is the reason why no worker should
    run.
    """

    workers: WorkerSpec
    group: GroupSettings
    group_now: GroupSettings
    owner: Peer | None
    refusal: str | None
    foreign: tuple[str, ...]
    suspension: Suspension | None

    @property
    def may_change_group(self) -> bool:
        return self.owner is None and self.refusal is None

    @property
    def revision(self) -> Revision:
        return self.workers.revision


def desired_state(resource: LogHubConsumerGroup, observed: ObservedState) -> Desired:
    """Pure; no time is involved."""
    group = GroupSettings(timeout_s=resource.spec.timeout_seconds, order=resource.spec.in_order)
    owner = owner_of(resource, observed.peers)
    foreign = foreign_consumers(resource, observed)
    refusal = adoption_refusal(resource, observed, foreign)
    return Desired(
        workers=desired_spec(observed),
        group=group,
        group_now=_group_now(group, observed),
        owner=owner,
        refusal=refusal,
        foreign=foreign,
        suspension=suspension_of(resource, observed, owner, refusal),
    )


def desired_spec(observed: ObservedState) -> WorkerSpec:
    """What the workers should run with."""
    assert observed.worker_spec is not None  # the deletion of the object is planned elsewhere
    return observed.worker_spec


def _group_now(group: GroupSettings, observed: ObservedState) -> GroupSettings:
    """A timeout is shortened only once every worker runs with it. A worker with the longer timeout would
    continue with shards that the log service has already reassigned, and its heartbeats would come too late
    for the shorter timeout.
    """
    existing = observed.service.group if isinstance(observed.service, Available) else None
    if existing is None or group.timeout_s >= existing.timeout_s:
        return group
    settings = desired_spec(observed).revision.settings
    if all(worker.revision.settings == settings for worker in observed.workers):
        return group
    return GroupSettings(timeout_s=existing.timeout_s, order=group.order)
